package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTurnedAway: a member whose subscription has grown beyond what a group may hold is out, and the others get what it had.
// One that only replaces a large subscription by another is not.
func TestTurnedAway(t *testing.T) {
	w := newWorld(t)
	join := func(id string, bytes int) {
		w.request(&kmsg.JoinGroupRequest{
			Version: 3, Group: "g", MemberID: id, SessionTimeoutMillis: 30_000, RebalanceTimeoutMillis: 30_000, ProtocolType: "other",
			Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "p", Metadata: make([]byte, bytes)}},
		})
	}
	const large = maxGroupMemberBytes * 3 / 4
	join("", large)
	w.pass(testSettings().InitialDelay)
	w.request(&kmsg.SyncGroupRequest{Version: 3, Group: "g", MemberID: "c-1", Generation: 1})
	g := w.m.groups["g"]
	if g.state != Stable {
		t.Fatal(g.state)
	}
	join("c-1", large+1)
	if g.byID["c-1"] == nil {
		t.Fatal("a member that needs one byte more was turned away")
	}
	w.request(&kmsg.SyncGroupRequest{Version: 3, Group: "g", MemberID: "c-1", Generation: g.generation})
	before := g.generation
	join("c-1", maxGroupMemberBytes)
	if g.byID["c-1"] != nil || g.state == Stable || g.generation == before {
		t.Fatalf("%d members, %s at generation %d", len(g.members), g.state, g.generation)
	}
}

// TestCommittedIsSteady: of more offsets than are wanted the same are left out each time.
func TestCommittedIsSteady(t *testing.T) {
	m := NewMachine(testSettings())
	for i := range int32(50) {
		m.putOffset("g", "t", i, &offset{at: int64(i)})
	}
	for i, c := range m.someOffsets(10) {
		if c != (Committed{"g", "t", int32(i), int64(i)}) {
			t.Fatalf("place %d has %v", i, c)
		}
	}
}
