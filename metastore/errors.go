package metastore

import "fmt"

// ForeignError says that the folder belongs to another node or cluster.
type ForeignError struct {
	Dir  string
	What string // "node id" or "cluster id"
	Have string // as stamped in the folder
	Want string // as configured
}

// Error implements error and names the fix.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("metadata folder %s belongs to %s %s, not %s: configure that %s or use another folder", e.Dir, e.What, e.Have, e.Want, e.What)
}

// NewerError says that the folder was written by a newer version, whose format or feature level this one does not know.
type NewerError struct {
	Dir       string
	What      string // "format" or "feature level"
	Have      uint64
	Supported uint64
}

// Error implements error and names the fix.
func (e *NewerError) Error() string {
	return fmt.Sprintf("metadata folder %s has %s %d, this version supports at most %d: run the newer version", e.Dir, e.What, e.Have, e.Supported)
}
