package metastore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// cutBootstrap leaves Raft's folder as a crash does between the two writes of raft.BootstrapCluster: a term, and no entry that names the voters.
func cutBootstrap(t *testing.T, dir string, term uint64) {
	t.Helper()
	raftDir := filepath.Join(dir, "raft")
	if err := makeDir(vfs.Default, raftDir); err != nil {
		t.Fatal(err)
	}
	w, err := wal.Open(raftDir, wal.WithSegmentSize(walSegmentBytes))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.SetUint64(raftTermKey, term), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestBootstrapCutShort: a first start that was killed inside the bootstrap, and starts after it that could not elect and raised the term, leave a
// folder that the next start makes whole. The voter it had stays itself.
func TestBootstrapCutShort(t *testing.T) {
	for _, term := range []uint64{1, 5} {
		dir := t.TempDir()
		cutBootstrap(t, dir, term)
		ctx, cancel := context.WithTimeout(testContext(t), 10*time.Second)
		s, err := Open(ctx, Options{Dir: dir, NodeID: 1})
		cancel()
		if err != nil {
			t.Fatalf("term %d: %v", term, err)
		}
		propose(t, s, createTopicCmd("t", 1))
		closeTest(t, s)
		s = openTest(t, Options{Dir: dir, NodeID: 1})
		if _, ok := s.Image().Topic("t"); !ok {
			t.Fatalf("term %d: the topic is gone after a restart", term)
		}
		if n := voters(t, s); n != 1 {
			t.Fatalf("term %d: %d voters", term, n)
		}
	}
}

func voters(t *testing.T, s *Store) int {
	t.Helper()
	f := s.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	for _, srv := range f.Configuration().Servers {
		if srv.ID != s.server || srv.Suffrage != raft.Voter {
			t.Fatalf("server %+v, this one is %s", srv, s.server)
		}
	}
	return len(f.Configuration().Servers)
}

// TestStateAheadOfLog: a log that lost its tail, by a damaged block or because it was copied before the state was, has the state's last indexes still
// to give out. A command that got one of them would be passed over as applied before, and answered as if it had been.
func TestStateAheadOfLog(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{Dir: dir, NodeID: 1})
	randomRun(t, s, 3, 400)
	rows := dump(t, s.fsm)
	closeTest(t, s)
	w, err := wal.Open(filepath.Join(dir, "raft"), wal.WithSegmentSize(walSegmentBytes))
	if err != nil {
		t.Fatal(err)
	}
	last, err := w.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.DeleteRange(last-300, last), w.Close()); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s = openTest(t, Options{Dir: dir, NodeID: 1})
		if got := dump(t, s.fsm); round == 0 && got != rows {
			t.Fatalf("started with\n%s\nwas\n%s", got, rows)
		}
		name := fmt.Sprintf("late-%d", round)
		if r := propose(t, s, createTopicCmd(name, 1)); r.Index < last {
			t.Errorf("a command at index %d, the state has had %d", r.Index, last)
		}
		if _, ok := s.Image().Topic(name); !ok {
			t.Errorf("topic %s was created and is not there", name)
		}
		closeTest(t, s)
	}
}
