package tiering

// Failpoints of snapshots and restores, as in failpoint.go.
const (
	fpSnapPart  = "snap-part"  // before a part of a snapshot is stored
	fpSnapPut   = "snap-put"   // before the last object is, which makes it one
	fpSnapTaken = "snap-taken" // before the metastore hears of it
	fpSnapPrune = "snap-prune" // before old snapshots and journal objects go

	fpRestorePhase   = "restore-phase-"  // at the beginning of each phase; its name follows
	fpRestoreClaim   = "restore-claim"   // before a folder is taken over
	fpRestoreWipe    = "restore-wipe"    // before leftovers of an earlier try go
	fpRestoreRows    = "restore-rows"    // before topics and rows are taken in
	fpRestoreGroups  = "restore-groups"  // before group offsets are stored
	fpRestoreReport  = "restore-report"  // before the report is
	fpRestorePublish = "restore-publish" // before a topic becomes visible
	fpRestoreEnd     = "restore-end"     // before the restore is over
)

// restoreFailpoints lists them all, for the test that crashes at each.
var restoreFailpoints = []string{
	fpSnapPart, fpSnapPut, fpSnapTaken, fpSnapPrune,
	fpRestorePhase + "claim", fpRestorePhase + "import", fpRestorePhase + "publish", fpRestorePhase + "snapshot",
	fpRestoreClaim, fpRestoreWipe, fpRestoreRows, fpRestoreGroups, fpRestoreReport, fpRestorePublish, fpRestoreEnd,
}
