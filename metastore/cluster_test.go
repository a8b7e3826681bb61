package metastore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestThreeVoters runs three voters in one process: what the leader commits is on all of them, leadership is handed on at Close, and a node
// that was away catches up through a snapshot.
func TestThreeVoters(t *testing.T) {
	const n = 3
	opts := make([]Options, n)
	trans := make([]*raft.InmemTransport, n)
	for i := range opts {
		opts[i] = Options{Dir: t.TempDir(), NodeID: int32(i + 1), ClusterID: "c", snapshotEvery: 16, trailingLogs: 4}
		f, err := openFolder(osFS(), opts[i].Dir, opts[i].NodeID, "c", nil) // stamps the folder, which gives the server its id
		if err != nil {
			t.Fatal(err)
		}
		var addr raft.ServerAddress
		addr, trans[i] = raft.NewInmemTransport("")
		id := raft.ServerID(fmt.Sprintf("%d+%s", i+1, f.stamp.directory))
		for k := range opts {
			opts[k].voters = append(opts[k].voters, raft.Server{ID: id, Address: addr})
		}
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range opts {
		for k := range n {
			opts[i].voters = append([]raft.Server(nil), opts[0].voters...)[:n]
			if k != i {
				trans[i].Connect(trans[k].LocalAddr(), trans[k])
			}
		}
		opts[i].transport = trans[i]
	}
	stores := make([]*Store, n)
	for i := range stores {
		stores[i] = openTest(t, opts[i])
	}
	leader := controllerOf(t, stores)
	randomRun(t, stores[leader], 1, 40)
	sameEverywhere(t, stores)

	closeTest(t, stores[leader]) // hands leadership on
	rest := []*Store{stores[(leader+1)%n], stores[(leader+2)%n]}
	next := rest[controllerOf(t, rest)]
	if got := next.Image().Controller(); got != next.NodeID() {
		t.Fatalf("controller is %d, not %d", got, next.NodeID())
	}
	for round := range uint64(4) {
		randomRun(t, next, 2+round, 20)
		time.Sleep(30 * time.Millisecond) // lets it take snapshots and cut the log
	}
	o := opts[leader]
	_, back := raft.NewInmemTransport(trans[leader].LocalAddr())
	for k := range n {
		if k != leader {
			back.Connect(trans[k].LocalAddr(), trans[k])
			trans[k].Connect(back.LocalAddr(), back)
		}
	}
	o.transport = back
	again := openTest(t, o)
	sameEverywhere(t, []*Store{next, again})
}

func controllerOf(t *testing.T, stores []*Store) (leader int) {
	t.Helper()
	waitFor(t, func() bool {
		for i, s := range stores {
			if s.IsController() {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

func sameEverywhere(t *testing.T, stores []*Store) {
	t.Helper()
	waitFor(t, func() bool {
		for _, s := range stores {
			if s.Image().Index() != stores[0].Image().Index() {
				return false
			}
		}
		return true
	})
	for _, s := range stores {
		if dump(t, s.fsm) != dump(t, stores[0].fsm) || describe(s.Image()) != describe(stores[0].Image()) {
			t.Fatalf("node %d differs from node %d", s.NodeID(), stores[0].NodeID())
		}
	}
}

// TestWaitControllerEnds: the wait ends with its context, and with the store.
func TestWaitControllerEnds(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 1})
	lost, err := s.WaitController(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, s)
	<-lost
	if _, err := s.WaitController(context.Background()); err == nil {
		t.Fatal("controller of a closed store")
	}
}
