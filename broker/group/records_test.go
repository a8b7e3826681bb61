package group

import (
	"bytes"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

func TestPartitionOf(t *testing.T) {
	// The hashes are Java's: "".hashCode() is 0, "polygenelubricants".hashCode() is Integer.MIN_VALUE.
	for group, want := range map[string]int32{"": 0, "a": 97 % 50, "test": 3556498 % 50, "polygenelubricants": 0, "console-consumer-1": partitionOf("console-consumer-1", 50), "grüße": partitionOf("grüße", 50)} {
		if got := partitionOf(group, 50); got != want || got < 0 || got >= 50 {
			t.Errorf("%q is in %d, want %d", group, got, want)
		}
	}
}

func TestRecordsOfOtherProtocolsAndVersions(t *testing.T) {
	m := NewMachine(testSettings())
	for _, key := range [][]byte{{0, 3, 0, 1, 'g'}, {0, 99}, {0xff, 0xff}} {
		if known, err := m.Replay(Record{Key: key, Value: []byte("x")}); known || err != nil {
			t.Errorf("key % x: %v %v", key, known, err)
		}
	}
	for _, r := range []Record{{}, {Key: []byte{0}}, {Key: []byte{0, 1, 0}}, {Key: groupKey("g"), Value: []byte{0}}, {Key: groupKey("g"), Value: []byte{0, 3, 0xff}}, {Key: offsetKey("g", "t", 0), Value: []byte{0xff, 0xff, 0}}} {
		if _, err := m.Replay(r); protocol.CodeOf(err) != protocol.KafkaStorageError {
			t.Errorf("% x: % x: %v", r.Key, r.Value, err)
		}
	}
	old := kmsg.NewGroupMetadataValue()
	old.Version, old.ProtocolType, old.Generation, old.Protocol, old.Leader = 0, "consumer", 4, kmsg.StringPtr("range"), kmsg.StringPtr("m")
	old.Members = []kmsg.GroupMetadataValueMember{{MemberID: "m", SessionTimeoutMillis: 7000, RebalanceTimeoutMillis: -1, Subscription: subscriptionOf([]string{"t"})}}
	if _, err := m.Replay(Record{Key: groupKey("old"), Value: old.AppendTo(nil)}); err != nil {
		t.Fatal(err)
	}
	g := m.groups["old"]
	if g.state != Stable || g.stateMs != noTimestamp || g.byID["m"].rebalanceMs != 7000 || !g.subscribedTo("t") || g.subscribedTo("u") {
		t.Errorf("%+v %+v", g, g.byID["m"])
	}
	newest := kmsg.OffsetCommitValue{Version: 4, Offset: 9, LeaderEpoch: 2, Metadata: "m", CommitTimestamp: 5, TopicID: protocol.UUID{1}}
	if _, err := m.Replay(Record{Key: offsetKey("old", "t", 1), Value: newest.AppendTo(nil)}); err != nil {
		t.Fatal(err)
	}
	if o := g.offsets["t"][1]; o != (offset{at: 9, leaderEpoch: 2, metadata: "m", commitMs: 5, expireMs: noTimestamp}) {
		t.Errorf("%+v", o)
	}
}

// FuzzReplay: no record stops a load, and what was understood is written the same again.
func FuzzReplay(f *testing.F) {
	f.Add(offsetKey("g", "t", 3), offsetRecord("g", "t", 3, offset{at: 5, leaderEpoch: 1, metadata: "m", commitMs: 7, expireMs: noTimestamp}).Value)
	f.Add(offsetKey("g", "t", 3), offsetRecord("g", "t", 3, offset{at: 5, leaderEpoch: -1, commitMs: 7, expireMs: 9}).Value)
	g := newGroup("g", 5)
	g.protocolType, g.protocol, g.generation = "consumer", kmsg.StringPtr("range"), 3
	g.add(&member{id: "m", instance: kmsg.StringPtr("i"), clientID: "c", clientHost: "/h", sessionMs: 1, rebalanceMs: 2,
		protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscriptionOf([]string{"t"})}}})
	f.Add(groupKey("g"), groupRecord(g, map[string][]byte{"m": []byte("a")}).Value)
	f.Add(groupKey("g"), []byte{0, 3, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 3}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := NewMachine(testSettings())
		for _, r := range []Record{{key, value}, {key, value}, {Key: key}} {
			known, err := m.Replay(r)
			if known != (err == nil && known) {
				t.Fatal("known and not understood")
			}
			if g, ok := m.groups["g"]; ok && len(g.members) > 0 {
				again := groupRecord(g, g.assignments())
				if _, err := NewMachine(testSettings()).Replay(again); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(again.Key, groupKey("g")) {
					t.Fatal("another key")
				}
			}
		}
		now := time.UnixMilli(1)
		m.Step(now, Loaded{TopicExists: func(string) bool { return false }})
		m.Step(now.Add(time.Hour), Tick{Expire: true})
		m.Step(now, Stop{Err: protocol.NotCoordinator})
	})
}

func FuzzSubscription(f *testing.F) {
	f.Add(subscriptionOf([]string{"a", "b"}))
	f.Add([]byte{0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 0})
	f.Fuzz(func(t *testing.T, metadata []byte) {
		topics, ok := subscribed(metadata)
		n := 6
		for _, topic := range topics {
			n += 2 + len(topic)
		}
		if ok && n > len(metadata) {
			t.Fatalf("%d bytes of topics in %d", n, len(metadata))
		}
	})
}
