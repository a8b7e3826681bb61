package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"varve/protocol"
)

// storm sends random requests to a machine, with appends that are slow and sometimes fail.
type storm struct {
	t     *rapid.T
	m     *Machine
	now   time.Time
	log   []Record
	held  []Append
	asked map[string]bool // tickets; true once answered
	ids   []string        // that were given out
}

func newStorm(t *rapid.T) *storm {
	s := &storm{t: t, now: time.UnixMilli(1_000_000_000), asked: map[string]bool{}, ids: []string{"", "stranger"}}
	s.load()
	return s
}

func (s *storm) load() {
	s.m = NewMachine(testSettings())
	for _, r := range s.log {
		if _, err := s.m.Replay(r); err != nil {
			s.t.Fatal(err)
		}
	}
	s.step(Loaded{TopicExists: func(string) bool { return true }})
}

func (s *storm) step(ev Event) {
	out := s.m.Step(s.now, ev)
	for _, a := range out.Answers {
		id := a.To.(string)
		if answered, asked := s.asked[id]; !asked || answered {
			s.t.Fatalf("%s was answered twice", id)
		}
		s.asked[id] = true
		if j, ok := a.Result.(*kmsg.JoinGroupResponse); ok && j.MemberID != "" && !slices.Contains(s.ids, j.MemberID) {
			s.ids = append(s.ids, j.MemberID)
		}
	}
	s.held = append(s.held, out.Appends...)
	s.check()
}

// finish ends the oldest append. A failed one may be in the log all the same.
func (s *storm) finish() {
	if len(s.held) == 0 {
		return
	}
	a := s.held[0]
	s.held = s.held[1:]
	err := protocol.None
	switch rapid.IntRange(0, 9).Draw(s.t, "append") {
	case 0:
		err = protocol.NotEnoughReplicas
	case 1:
		err = protocol.RequestTimedOut
		s.log = append(s.log, a.Records...)
	default:
		s.log = append(s.log, a.Records...)
	}
	s.step(Appended{ID: a.ID, Err: err})
}

func (s *storm) request(body any) {
	id := fmt.Sprintf("r%d", len(s.asked)+1)
	s.asked[id] = false
	s.step(&Request{Ticket: id, ClientID: "c", Unique: id, Body: body})
}

// check holds what is counted against what is there.
func (s *storm) check() {
	for id, g := range s.m.groups {
		joining, bytes, support := 0, 0, map[string]int{}
		for _, mem := range g.members {
			if mem.join != nil {
				joining++
			}
			bytes += mem.size()
			for _, p := range mem.protocols {
				support[p.Name]++
			}
			if g.byID[mem.id] != mem || mem.instance != nil && g.statics[*mem.instance] != mem.id {
				s.t.Fatalf("%s: member %s cannot be found", id, mem.id)
			}
			if mem.sync != nil && g.state != Completing {
				s.t.Fatalf("%s: a SyncGroup waits in state %s", id, g.state)
			}
			if mem.join != nil && g.state != Preparing && g.state != Stable {
				s.t.Fatalf("%s: a JoinGroup waits in state %s", id, g.state)
			}
			if _, armed := s.m.timers.byKey[timerKey{timerSession, id, mem.id}]; !armed && !mem.heard() {
				s.t.Fatalf("%s: nothing ends the session of %s", id, mem.id)
			}
		}
		if joining != g.joining || bytes != g.bytes || fmt.Sprint(support) != fmt.Sprint(g.support) || len(g.byID) != len(g.members) {
			s.t.Fatalf("%s: joining %d of %d, %d bytes of %d, %v of %v", id, g.joining, joining, g.bytes, bytes, g.support, support)
		}
		if (g.state == Empty) != (len(g.members) == 0 && g.state != Preparing) || len(g.members) > 0 && g.byID[g.leader] == nil {
			s.t.Fatalf("%s: %d members in state %s, leader %q", id, len(g.members), g.state, g.leader)
		}
		if g.state == Preparing && s.m.timers.byKey[timerKey{kind: timerJoin, group: id}] == nil {
			s.t.Fatalf("%s: nothing ends the wait for members", id)
		}
	}
}

func (s *storm) random() {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(s.t, label) }
	group := pick("group", "g", "h")
	member := rapid.SampledFrom(s.ids[max(len(s.ids)-5, 0):]).Draw(s.t, "member")
	instance := kmsg.StringPtr(pick("instance", "i", "j", ""))
	if *instance == "" {
		instance = nil
	}
	generation := int32(rapid.IntRange(-1, 4).Draw(s.t, "generation"))
	if g := s.m.groups[group]; g != nil && rapid.Bool().Draw(s.t, "present") {
		generation = g.generation
		if mem := g.byID[member]; mem != nil {
			instance = mem.instance
		}
	}
	switch rapid.IntRange(0, 14).Draw(s.t, "request") {
	case 0, 1, 2, 3:
		r := &kmsg.JoinGroupRequest{Version: int16(rapid.IntRange(0, 9).Draw(s.t, "version")), Group: group, MemberID: member, InstanceID: instance,
			ProtocolType: "consumer", SessionTimeoutMillis: 5000, RebalanceTimeoutMillis: int32(rapid.SampledFrom([]int{0, 4000}).Draw(s.t, "rebalance"))}
		for _, p := range strings.Fields(pick("protocols", "range", "sticky range", "range sticky")) {
			r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: p, Metadata: subscriptionOf([]string{pick("topic", "t", "u")})})
		}
		s.request(r)
	case 4, 5, 6:
		s.request(&kmsg.SyncGroupRequest{Group: group, MemberID: member, InstanceID: instance, Generation: generation,
			GroupAssignment: []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("mine")}}})
	case 7:
		s.request(&kmsg.HeartbeatRequest{Group: group, MemberID: member, InstanceID: instance, Generation: generation})
	case 8:
		s.request(&kmsg.LeaveGroupRequest{Group: group, Members: []kmsg.LeaveGroupRequestMember{{MemberID: member, InstanceID: instance}}})
	case 9:
		s.request(&Delete{Group: group})
	case 10:
		s.request(&kmsg.OffsetDeleteRequest{Group: group, Topics: []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}})
	case 11:
		s.request(&FetchOffsets{Group: kmsg.OffsetFetchRequestGroup{Group: group}, RequireStable: true})
	default:
		s.request(&kmsg.OffsetCommitRequest{Version: 9, Group: group, MemberID: member, InstanceID: instance, Generation: generation,
			Topics: []kmsg.OffsetCommitRequestTopic{{Topic: pick("topic", "t", "u"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: int64(len(s.asked))}}}}})
	}
}

// stored is what a machine holds of durable things: offsets, and the members of stable groups.
func stored(m *Machine) string {
	var b strings.Builder
	for _, g := range m.sorted() {
		for _, p := range g.all() {
			fmt.Fprintf(&b, "%s %s-%d %d\n", g.id, p.topic, p.partition, p.offset.at)
		}
		if g.state == Stable {
			fmt.Fprintf(&b, "%s %d %s", g.id, g.generation, g.leader)
			for _, mem := range g.members {
				fmt.Fprintf(&b, " %s=%s", mem.id, mem.assignment)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestStorm: whatever clients do, each request is answered once, what is counted is there, and what clients were told is
// stored is back after a restart.
func TestStorm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3, 4:
				s.random()
			case 5, 6:
				s.finish()
			case 7:
				s.now = s.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
				s.step(Tick{Expire: true})
			case 8:
				for len(s.held) > 0 {
					s.finish()
				}
			case 9:
				if rapid.IntRange(0, 4).Draw(t, "stop") == 0 {
					s.restart()
				}
			}
		}
		s.restart()
	})
}

// restart ends the machine, whose appends under way are in the log or not, and begins anew.
func (s *storm) restart() {
	s.step(Stop{Err: protocol.NotCoordinator})
	for id, answered := range s.asked {
		if !answered {
			s.t.Fatalf("%s was not answered", id)
		}
	}
	for _, a := range s.held {
		if !rapid.Bool().Draw(s.t, "reached") {
			break
		}
		s.log = append(s.log, a.Records...)
	}
	s.held = nil
	s.load()
}

// TestRestartAfterEveryRecord: whatever part of the log is there, it loads, and holds what the machine held when the last
// record was stored.
func TestRestartAfterEveryRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(t)
		held := map[int]string{0: ""}
		for range 150 {
			s.random()
			for len(s.held) > 0 {
				a := s.held[0]
				s.held = s.held[1:]
				s.log = append(s.log, a.Records...)
				s.step(Appended{ID: a.ID})
				held[len(s.log)] = stored(s.m)
			}
			s.now = s.now.Add(300 * time.Millisecond)
			s.step(Tick{Expire: true})
		}
		for n := range len(s.log) + 1 {
			again := NewMachine(testSettings())
			for _, r := range s.log[:n] {
				if _, err := again.Replay(r); err != nil {
					t.Fatal(err)
				}
			}
			if want, whole := held[n]; whole && offsetsOf(stored(again)) != offsetsOf(want) {
				t.Fatalf("after %d records:\n%s\nbefore the restart:\n%s", n, stored(again), want)
			}
			again.Step(s.now, Loaded{TopicExists: func(string) bool { return true }})
			again.Step(s.now.Add(time.Hour), Tick{Expire: true})
		}
	})
}

// offsetsOf leaves the members out: of a rebalance under way nothing is stored.
func offsetsOf(s string) string {
	lines := slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return strings.Count(l, "-") != 1 || strings.Contains(l, "=") })
	return strings.Join(lines, "\n")
}
