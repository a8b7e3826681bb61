package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"varve/protocol"
)

// LockedError says that another process uses the log directory.
type LockedError struct {
	Dir string
	Err error
}

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("log directory %s is in use by another process (%s): %v", e.Dir, lockFile, e.Err)
}

// Unwrap gives the lock's own error.
func (e *LockedError) Unwrap() error { return e.Err }

// ForeignError says that the log directory is not for this node.
type ForeignError struct {
	File      string
	Field     string // the property that differs
	Has, Want string
}

// Error implements error.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s has %s=%s, this node expects %s: point log.dirs at this node's own directory, or correct %s", e.File, e.Field, e.Has, e.Want, e.Field)
}

// metaProperties is meta.properties version 1 (MetaProperties.java). Keys that
// are not known here are kept.
type metaProperties struct {
	clusterID   string
	nodeID      int32
	directoryID protocol.UUID
	other       []string // whole lines
}

const maxMetaBytes = 1 << 16

func (p metaProperties) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "version=1\nnode.id=%d\n", p.nodeID)
	if p.clusterID != "" {
		fmt.Fprintf(&b, "cluster.id=%s\n", p.clusterID)
	}
	fmt.Fprintf(&b, "directory.id=%s\n", p.directoryID)
	for _, line := range p.other {
		b.WriteString(line + "\n")
	}
	return b.Bytes()
}

// decodeProperties reads a Java properties file as Kafka writes it: comments,
// key=value, no continued lines. The error is a *ForeignError for another
// version, else a CorruptionError.
func decodeProperties(data []byte, file string) (metaProperties, error) {
	p := metaProperties{nodeID: -1}
	version := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return p, &protocol.CorruptionError{Where: file, What: fmt.Sprintf("line %q is not key=value", line)}
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		var err error
		switch key {
		case "version":
			version = value
		case "cluster.id":
			p.clusterID = value
		case "node.id", "broker.id":
			var id int64
			id, err = strconv.ParseInt(value, 10, 32)
			p.nodeID = int32(id)
		case "directory.id":
			p.directoryID, err = protocol.ParseUUID(value)
		default:
			p.other = append(p.other, line)
		}
		if err != nil {
			return p, &protocol.CorruptionError{Where: file, What: fmt.Sprintf("%s=%s: %v", key, value, err)}
		}
	}
	if version != "1" {
		return p, &ForeignError{File: file, Field: "version", Has: version, Want: "1"}
	}
	return p, nil
}

// loadProperties reads meta.properties, holds it against the options and
// writes what was missing.
func (m *Manager) loadProperties() (metaProperties, error) {
	file := m.path(metaFile)
	data, err := readFile(m.fs, file, maxMetaBytes)
	p := metaProperties{nodeID: m.opts.NodeID}
	switch {
	case err == nil:
		if p, err = decodeProperties(data, file); err != nil {
			return p, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	}
	if p.nodeID != m.opts.NodeID && p.nodeID >= 0 {
		return p, &ForeignError{File: file, Field: "node.id", Has: strconv.Itoa(int(p.nodeID)), Want: strconv.Itoa(int(m.opts.NodeID))}
	}
	if p.clusterID != "" && m.opts.ClusterID != "" && p.clusterID != m.opts.ClusterID {
		return p, &ForeignError{File: file, Field: "cluster.id", Has: p.clusterID, Want: m.opts.ClusterID}
	}
	p.nodeID = m.opts.NodeID
	if p.clusterID == "" {
		p.clusterID = m.opts.ClusterID
	}
	if p.directoryID.IsZero() {
		p.directoryID = protocol.NewUUID()
	}
	if encoded := p.encode(); !bytes.Equal(encoded, data) {
		return p, writeFileAtomic(m.fs, file, encoded)
	}
	return p, nil
}

// SetClusterID notes the cluster once it is known, which at a first start is
// after the metastore has come up. The error is a *ForeignError when the
// directory belongs to another.
func (m *Manager) SetClusterID(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.props.clusterID == id {
		return nil
	}
	if m.props.clusterID != "" {
		return &ForeignError{File: m.path(metaFile), Field: "cluster.id", Has: m.props.clusterID, Want: id}
	}
	p := m.props
	p.clusterID = id
	if err := writeFileAtomic(m.fs, m.path(metaFile), p.encode()); err != nil {
		return err
	}
	m.props = p
	return nil
}
