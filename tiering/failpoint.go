package tiering

import "fmt"

// Failpoints, one before each step that changes something outside of memory, and
// one after the last of each chain. A test crashes at every one of them.
const (
	fpOwnerPut = "owner-put"

	fpUploadRetire  = "upload-retire"  // before attempts of a previous life go to DELETE_STARTED
	fpUploadStart   = "upload-start"   // before STARTED
	fpUploadPut     = "upload-put"     // before the PUT
	fpUploadFinish  = "upload-finish"  // before FINISHED
	fpUploadAbandon = "upload-abandon" // before a failed attempt goes to DELETE_STARTED
	fpUploadDone    = "upload-done"    // after FINISHED

	fpMergeStart   = "merge-start"   // before STARTED, with the new segment on local disk
	fpMergePut     = "merge-put"     // before the PUT
	fpMergeVerify  = "merge-verify"  // before the object is read back
	fpMergeReplace = "merge-replace" // before REPLACE
	fpMergeAbandon = "merge-abandon" // before a failed attempt goes to DELETE_STARTED
	fpMergeDone    = "merge-done"    // after REPLACE

	fpRollAge   = "roll-age"   // before the active segment is sealed by age
	fpLocalRoll = "local-roll" // before it is sealed by local retention
	fpLocalFree = "local-free" // before local segments go
	fpLocalDone = "local-done"

	fpStartAdvance = "start-advance" // before the metastore moves log start
	fpStartApply   = "start-apply"   // before the replica hears of it
	fpSegsDelete   = "segs-delete"   // before rows go to DELETE_STARTED
	fpSegsDone     = "segs-done"

	fpGCDelete = "gc-delete" // before objects go
	fpGCGone   = "gc-gone"   // before their rows go
	fpGCDone   = "gc-done"

	fpJournalPut   = "journal-put"   // before the journal object is stored
	fpJournalClear = "journal-clear" // before the outbox is cleared
	fpJournalDone  = "journal-done"
)

// failpoints and mergeFailpoints list them all, for the tests that crash at each.
var failpoints = []string{
	fpOwnerPut,
	fpUploadRetire, fpUploadStart, fpUploadPut, fpUploadFinish, fpUploadAbandon, fpUploadDone,
	fpRollAge, fpLocalRoll, fpLocalFree, fpLocalDone,
	fpStartAdvance, fpStartApply, fpSegsDelete, fpSegsDone,
	fpGCDelete, fpGCGone, fpGCDone,
	fpJournalPut, fpJournalClear, fpJournalDone,
}

var mergeFailpoints = []string{fpMergeStart, fpMergePut, fpMergeVerify, fpMergeReplace, fpMergeAbandon, fpMergeDone}

// crashError ends a step at a failpoint.
type crashError struct {
	name string
	err  error
}

func (e *crashError) Error() string { return fmt.Sprintf("failpoint %s: %v", e.name, e.err) }
func (e *crashError) Unwrap() error { return e.err }

func (m *Manager) fail(name string) error {
	if m.o.Failpoint == nil {
		return nil
	}
	if err := m.o.Failpoint(name); err != nil {
		return &crashError{name, err}
	}
	return nil
}
