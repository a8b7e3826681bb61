package metastore

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"varve/metastore/metapb"
	"varve/protocol"
)

// model is what invariant 7 says, in the simplest form: one partition, ranges and states.
type model struct {
	r                    *rig
	topic                protocol.UUID
	leader, epoch, pe    int32
	logStart, end        int64
	started, dying       map[protocol.UUID]*RemoteSegment
	finished             []*RemoteSegment // in order of base
	never                map[protocol.UUID]bool
	ids                  int
	sawFinish, sawRefuse bool
}

// TestRemoteSegmentRules runs random commands against the state machine and the model; the rig applies each twice.
func TestRemoteSegmentRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(rt)
		r.must(createTopicCmd("t", 1))
		m := &model{
			r: r, topic: uid("t"), leader: 1, started: map[protocol.UUID]*RemoteSegment{}, dying: map[protocol.UUID]*RemoteSegment{},
			never: map[protocol.UUID]bool{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"start": m.start, "finish": m.finish, "elect": m.elect, "logStart": m.advance, "replace": m.replace,
			"delete": m.delete, "gone": m.gone, "": m.check,
		})
	})
}

func (m *model) start(t *rapid.T) {
	base := max(0, m.end+rapid.SampledFrom([]int64{0, 0, 0, -3, 3, 7}).Draw(t, "shift"))
	m.ids++
	s := segment("t", fmt.Sprintf("s%d", m.ids), base, base+rapid.Int64Range(1, 9).Draw(t, "len"), m.epoch)
	s.Broker = rapid.SampledFrom([]int32{m.leader, m.leader, m.leader, 3 - m.leader}).Draw(t, "broker")
	s.DeadlineMs = m.r.now + 500
	s.Epochs = []EpochStart{{Epoch: m.epoch, Start: base}}
	_, err := m.r.apply(startCmd(s))
	if want := s.Broker == m.leader; (err == nil) != want {
		t.Fatalf("start by %d under leader %d: %v", s.Broker, m.leader, err)
	}
	if err == nil {
		m.started[s.ID] = s
	}
}

func pick(t *rapid.T, from map[protocol.UUID]*RemoteSegment) *RemoteSegment {
	if len(from) == 0 {
		return nil
	}
	ids := make([]string, 0, len(from))
	for id := range from {
		ids = append(ids, string(id[:]))
	}
	return from[uid(rapid.SampledFrom(sorted(ids)).Draw(t, "id"))]
}

func (m *model) finish(t *rapid.T) {
	s := pick(t, m.started)
	if rapid.IntRange(0, 4).Draw(t, "retry") == 0 {
		if s = pick(t, m.dying); s == nil && len(m.finished) > 0 {
			s = m.finished[0]
		}
	}
	if s == nil {
		return
	}
	res, err := m.r.apply(finishCmd(s))
	if err != nil {
		t.Fatal(err)
	}
	want := SegFinished
	switch {
	case m.dying[s.ID] != nil:
		want = SegDeleteStarted
	case m.started[s.ID] == nil:
	case s.LeaderEpoch == m.epoch && s.Broker == m.leader && (s.Base == m.end || s.Base > m.end && s.Base <= m.logStart):
		delete(m.started, s.ID)
		m.finished = append(m.finished, s)
		m.end = s.Next
		m.sawFinish = true
	default:
		want = SegDeleteStarted
		m.kill(s, true)
		m.sawRefuse = true
	}
	if res.State != want {
		t.Fatalf("finish %+v: %v (%s), want %v", s, res.State, res.Reason, want)
	}
}

func (m *model) kill(s *RemoteSegment, never bool) {
	delete(m.started, s.ID)
	m.dying[s.ID] = s
	m.never[s.ID] = never
}

func (m *model) elect(t *rapid.T) {
	m.leader = rapid.Int32Range(1, 2).Draw(t, "leader")
	m.r.must(&metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{Changes: []*metapb.PartitionChange{{
		TopicId: m.topic[:], ExpectPartitionEpoch: m.pe, ExpectLeaderEpoch: m.epoch,
		State: &metapb.Partition{Replicas: []int32{1, 2}, Dirs: [][]byte{make([]byte, 16), make([]byte, 16)}, Isr: []int32{m.leader}, Leader: m.leader, LeaderEpoch: m.epoch + 1},
	}}}}})
	m.pe++
	m.epoch++
}

func (m *model) advance(t *rapid.T) {
	to := m.logStart + rapid.Int64Range(0, 12).Draw(t, "by")
	m.r.must(&metapb.Command{Body: &metapb.Command_AdvanceLogStart{AdvanceLogStart: &metapb.AdvanceLogStart{TopicId: m.topic[:], LeaderEpoch: m.epoch, Offset: to}}})
	m.logStart = max(m.logStart, to)
}

func (m *model) replace(t *rapid.T) {
	if len(m.finished) < 2 {
		return
	}
	from := rapid.IntRange(0, len(m.finished)-2).Draw(t, "from")
	old := m.finished[from : from+2]
	m.ids++
	s := segment("t", fmt.Sprintf("s%d", m.ids), old[0].Base, old[1].Next+rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "too long"), m.epoch)
	s.Broker, s.Generation, s.DeadlineMs = m.leader, uint32(m.ids), m.r.now+500
	m.r.must(startCmd(s))
	c := &metapb.SegmentReplace{Old: [][]byte{old[0].ID[:], old[1].ID[:]}, Segment: s.toProto()}
	res := m.r.must(&metapb.Command{Body: &metapb.Command_SegmentReplace{SegmentReplace: c}})
	if s.Next != old[1].Next || old[0].Next != old[1].Base {
		if res.State != SegDeleteStarted {
			t.Fatalf("replace of unequal cover: %v", res)
		}
		m.kill(s, true)
		return
	}
	if res.State != SegFinished {
		t.Fatalf("replace: %v %s", res.State, res.Reason)
	}
	m.kill(old[0], false)
	m.kill(old[1], false)
	m.finished = append(append(append([]*RemoteSegment(nil), m.finished[:from]...), s), m.finished[from+2:]...)
}

func (m *model) delete(t *rapid.T) {
	if len(m.finished) == 0 {
		return
	}
	n := rapid.IntRange(0, min(2, len(m.finished)-1)).Draw(t, "which")
	s := m.finished[n]
	_, err := m.r.apply(&metapb.Command{Body: &metapb.Command_SegmentsDelete{SegmentsDelete: &metapb.SegmentsDelete{TopicId: m.topic[:], LeaderEpoch: m.epoch, Ids: [][]byte{s.ID[:]}}}})
	if want := s.Next <= m.logStart; (err == nil) != want {
		t.Fatalf("delete [%d, %d) at log start %d: %v", s.Base, s.Next, m.logStart, err)
	}
	if err == nil {
		m.kill(s, false)
		m.finished = append(append([]*RemoteSegment(nil), m.finished[:n]...), m.finished[n+1:]...)
	}
}

func (m *model) gone(t *rapid.T) {
	m.r.now += rapid.Int64Range(0, 300).Draw(t, "later")
	s := pick(t, m.dying)
	if s == nil {
		return
	}
	res := m.r.must(&metapb.Command{Body: &metapb.Command_SegmentsGone{SegmentsGone: &metapb.SegmentsGone{Ids: [][]byte{s.ID[:]}}}})
	stays := m.never[s.ID] && m.r.now <= s.DeadlineMs
	if stays != (res.Kept == 1) {
		t.Fatalf("gone at %d, deadline %d, never finished %v: kept %d", m.r.now, s.DeadlineMs, m.never[s.ID], res.Kept)
	}
	if !stays {
		delete(m.dying, s.ID)
	}
}

// check compares state and model, and what must always be true.
func (m *model) check(t *rapid.T) {
	tier, err := readTier(m.r.f.handle.db, m.topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if tier.End != m.end || tier.LogStart != m.logStart || tier.Count != int64(len(m.finished)) {
		t.Fatalf("tier %+v, model [%d, %d) with %d", tier, m.logStart, m.end, len(m.finished))
	}
	var bytes int64
	at := int64(-1)
	var fin []RemoteSegment
	for _, s := range segments(t, m.r.f, m.topic, 0) {
		switch {
		case s.State == SegStarted && m.started[s.ID] == nil, s.State == SegDeleteStarted && m.dying[s.ID] == nil:
			t.Fatalf("unexpected row %+v", s)
		case s.State == SegFinished:
			fin = append(fin, s)
			bytes += s.LogBytes
		}
	}
	for i, s := range fin {
		if s.ID != m.finished[i].ID {
			t.Fatalf("finished %d is %v", i, s)
		}
		if at >= 0 && (s.Base < at || s.Base > at && s.Base > m.logStart) {
			t.Fatalf("overlap or gap at %d before [%d, %d), log start %d", at, s.Base, s.Next, m.logStart)
		}
		at = s.Next
	}
	if len(fin) != len(m.finished) || bytes != tier.Bytes || m.logStart < m.end && at != m.end {
		t.Fatalf("%d finished with %d bytes up to %d; tier %+v", len(fin), bytes, at, tier)
	}
	if rowCount(t, m.r.f.handle.db, nsByID) != len(m.started)+len(m.dying) {
		t.Fatal("index by id does not match the pending rows")
	}
}
