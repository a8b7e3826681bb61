package tiering

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/protocol"
)

// matrixAlso are the faults that are not a store's, and the tests that show what becomes of them.
var matrixAlso = []struct{ fault, folder, test string }{
	{"kill -9 at every failpoint of upload, retention, deletion, journal", "tiering", "TestCrashAtEveryStep"},
	{"a step without a failpoint", "tiering", "TestEveryStepHasAFailpoint"},
	{"kill -9 at every failpoint of a merge", "tiering", "TestCrashAtEveryMergeStep"},
	{"a merge's step without a failpoint", "tiering", "TestEveryMergeStepHasAFailpoint"},
	{"kill -9 at every failpoint of a restore", "tiering", "TestRestoreCrashes"},
	{"kill -9 while a topic leaves the tier", "tiering", "TestCrashWhileLeaving"},
	{"kill -9 while a short disk is freed", "tiering", "TestCrashWhileFreeingEarly"},
	{"kill -9 of a real node in each phase of a restore", "tests/cluster", "TestRestoreKilled"},
	{"kill -9 of a real node at any moment, under load and in bad weather", "tests/chaos", "TestCrashes"},
	{"a forged stale writer: FINISHED of one that is not the leader any more", "tiering", "TestPausedWriter"},
	{"a forged stale writer: an object and a row of an epoch that has passed", "tiering", "TestForgedStaleWriter"},
	{"a cluster that lost its folder to another", "tiering", "TestOwnerTakenOver"},
	{"disk full while the store is away", "tests/chaos", "TestFullDiskWhileTheStoreIsAway"},
	{"disk full", "tests/cluster", "TestDiskFull"},
	{"disk full at the start", "tests/cluster", "TestStartOnFullDisk"},
	{"chunk cache's disk full, scribbled over, cut", "tiering", "TestReadCacheFails"},
	{"chunk cache full", "tiering", "TestReadTinyCache"},
	{"chunk cache and memory full, fifty readers", "tiering", "TestReadWithinMemory"},
	{"delete and recreate: readers", "tiering", "TestReadDeleteRecreate"},
	{"delete and recreate: uploads and what they leave", "tiering", "TestRecreatedTopic"},
	{"delete and recreate: a real node, over and over", "tests/chaos", "TestTopicsComeAndGo"},
	{"cold readers during retention", "tiering", "TestReadersDuringRetention"},
	{"cold readers during retention, of the real metastore", "tiering", "TestColdReadersRaceRetention"},
	{"cold readers across a merge", "tiering", "TestReadersAcrossMerge"},
}

// TestMatrixAlsoExists: the tests that the list names are there.
func TestMatrixAlsoExists(t *testing.T) {
	for _, also := range matrixAlso {
		files, err := filepath.Glob(filepath.Join("..", also.folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", also.folder, len(files), err)
		}
		found := false
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(b), "\nfunc "+also.test+"(")
		}
		if !found {
			t.Errorf("%s: there is no %s in %s", also.fault, also.test, also.folder)
		}
	}
}

// TestForgedStaleWriter: somebody who led an epoch ago stores an object and asks for its FINISHED, at the right offsets, with rows and without.
// He is refused, what the tier has stays as it is, and his object goes: by its row, or as an orphan.
func TestForgedStaleWriter(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.useMem(w.clock.Now)
	w.start()
	defer w.stop()
	w.append(40, 0)
	w.settle()
	last := w.rows()[len(w.rows())-1]
	b := w.object(w.m.rowKey(last))
	w.newEpoch()
	w.start()
	for _, started := range []bool{true, false} {
		forged := last
		forged.ID, forged.Base, forged.Next, forged.LeaderEpoch = protocol.NewUUID(), w.end(), w.end()+3, w.part.epoch-1
		if started {
			if err := w.meta.SegmentStart(w.ctx, forged, 1); err == nil {
				t.Error("an old leader's STARTED was taken")
			}
		}
		w.put(w.m.rowKey(forged), b)
		if state, err := w.meta.SegmentFinish(w.ctx, forged); err == nil {
			t.Errorf("an old leader's FINISHED was taken: %v", state)
		}
	}
	end := w.end()
	w.append(40, 0)
	w.settle()
	if w.end() <= end || w.end() != w.sealedEnd() {
		t.Fatalf("the tier ended at %d, now at %d of %d", end, w.end(), w.sealedEnd())
	}
	w.clock.advance(3 * time.Hour)
	w.verify(VerifyOptions{Repair: true})
	w.check()
}
