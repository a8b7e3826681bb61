package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
)

// stormTime is how long the storms last; -long storms are a matter of `go test -count`.
const stormTime = 1200 * time.Millisecond

// storm is producers, consumers and troublemakers at work on one node at once.
type storm struct {
	t     *testing.T
	n     *node
	topic string
	until time.Time

	mu    sync.Mutex
	acked []map[int64]string // by partition: what was acknowledged, by offset
	wg    sync.WaitGroup
	seq   atomic.Int64
}

func newStorm(t *testing.T, n *node, topic string, partitions int) *storm {
	s := &storm{t: t, n: n, topic: topic, until: time.Now().Add(stormTime)}
	for range partitions {
		s.acked = append(s.acked, map[int64]string{})
	}
	return s
}

func (s *storm) over() bool { return time.Now().After(s.until) }

// produce sends batches to random partitions; done must be called once for each request.
func (s *storm) produce(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for !s.over() {
		req := &AppendRequest{Acks: []int16{AcksAll, AcksLeader}[rng.IntN(2)], Timeout: 5 * time.Second}
		var values [][]string
		for p := range s.acked {
			if rng.IntN(2) == 0 {
				continue
			}
			var vs []string
			for range 1 + rng.IntN(5) {
				vs = append(vs, fmt.Sprintf("%d.%0*d", s.seq.Add(1), rng.IntN(2000), 0))
			}
			values = append(values, vs)
			req.Partitions = append(req.Partitions, AppendPartition{Topic: s.topic, Partition: int32(p), Records: batchOf(vs...)})
		}
		var calls atomic.Int32
		answer := make(chan []AppendResult, 1)
		s.n.m.Append(req, func(r []AppendResult) {
			if calls.Add(1) > 1 {
				s.t.Error("done was called twice")
				return
			}
			answer <- r
		})
		select {
		case r := <-answer:
			s.note(req, values, r)
		case <-time.After(10 * time.Second):
			s.t.Error("done was not called")
			return
		}
	}
}

func (s *storm) note(req *AppendRequest, values [][]string, results []AppendResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range results {
		switch r.Err {
		case protocol.None:
		case protocol.NotLeaderOrFollower, protocol.UnknownTopicOrPartition:
			continue // its records may be in the log all the same
		default:
			s.t.Errorf("append: %v %s", r.Err, r.Message)
			continue
		}
		at := s.acked[req.Partitions[i].Partition]
		for k, v := range values[i] {
			off := r.BaseOffset + int64(k)
			if was, ok := at[off]; ok {
				s.t.Errorf("offset %d was given to %q and %q", off, was, v)
			}
			at[off] = v
		}
	}
}

// consume reads a partition from its start to the end of the storm and then to the high watermark; what it saw must be
// in order, below the watermark, and the same as what was acknowledged.
func (s *storm) consume(index int32, committed bool) {
	seen := map[int64]string{}
	off := int64(0)
	for idle := 0; idle < 3 || !s.over(); {
		req := fetchReq(s.topic, off)
		req.MaxWait, req.ReadCommitted = 20*time.Millisecond, committed
		req.Partitions[0].Partition = index
		r := s.n.fetch(req)
		switch r.Err {
		case protocol.None:
		case protocol.OffsetOutOfRange:
			r, err := s.n.m.ListOffset(context.Background(), OffsetQuery{Topic: s.topic, Partition: index, CurrentLeaderEpoch: NoEpoch, ReplicaID: ConsumerID, Timestamp: TimestampEarliest})
			if err == nil && r.Offset < off {
				s.t.Errorf("offset %d is out of range, the log starts at %d", off, r.Offset)
			}
			off = max(off, r.Offset)
			continue
		case protocol.NotLeaderOrFollower, protocol.UnknownTopicOrPartition:
			time.Sleep(time.Millisecond)
			continue
		default:
			s.t.Errorf("fetch: %v", r.Err)
			return
		}
		got := records(s.t, r)
		if idle++; len(got) > 0 {
			idle = 0
		}
		for _, kv := range got {
			if kv.off >= r.HighWatermark {
				s.t.Errorf("offset %d at high watermark %d", kv.off, r.HighWatermark)
			}
			if kv.off < off {
				continue // the head of the first batch
			}
			if kv.off > off && r.LogStart <= off {
				s.t.Errorf("partition %d: %d after %d", index, kv.off, off)
			}
			seen[kv.off], off = kv.value, kv.off+1
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, v := range s.acked[index] {
		if got, ok := seen[o]; ok && got != v {
			s.t.Errorf("offset %d: acknowledged %.20q, read %.20q", o, v, got)
		}
		if o >= off {
			s.t.Errorf("acknowledged offset %d was never read; the end is %d", o, off)
		}
	}
	values := map[string]int64{}
	for o, v := range seen {
		if was, ok := values[v]; ok {
			s.t.Errorf("%.20q read at %d and %d", v, was, o)
		}
		values[v] = o
	}
}

// trouble runs fn again and again until the storm is over.
func (s *storm) trouble(pause time.Duration, fn func()) {
	s.wg.Go(func() {
		for !s.over() {
			fn()
			time.Sleep(pause)
		}
	})
}

// TestStorm: producers, consumers, elections, leaders that come and go, retention, and requests all at once. Every
// acknowledged record is read once, in order, at its offset, below the high watermark.
func TestStorm(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 3, []int32{self, 2}, "internal.segment.bytes", "30000", "retention.bytes", "200000")
	for i := range int32(3) {
		b.change(id, i, func(p *metastore.Partition) { p.ISR = []int32{self} })
		n.awaitState("a", i, StateLeader)
	}
	s := newStorm(t, n, "a", 3)
	var producers sync.WaitGroup
	for i := range 3 {
		producers.Go(func() { s.produce(uint64(i)) })
	}
	for i := range int32(3) {
		s.wg.Go(func() { s.consume(i, false) })
		s.wg.Go(func() { s.consume(i, true) })
	}
	rng := rand.New(rand.NewPCG(9, 9))
	s.trouble(5*time.Millisecond, func() { b.lead(id, int32(rng.IntN(2)), self) })
	s.trouble(50*time.Millisecond, func() {
		b.change(id, 0, func(p *metastore.Partition) { p.Leader, p.LeaderEpoch = -1, p.LeaderEpoch+1 })
		time.Sleep(2 * time.Millisecond)
		b.lead(id, 0, self)
	})
	s.trouble(10*time.Millisecond, func() {
		for _, p := range n.m.replicas() {
			p.tidy(time.Now(), p.index == 2)
		}
	})
	s.trouble(7*time.Millisecond, func() { n.m.Stats(); n.m.DescribeAll() })
	producers.Wait()
	for i := range int32(3) {
		await(t, "a leader in the end", func() bool { d, _ := n.m.Describe("a", i); return d.State == StateLeader })
	}
	s.wg.Wait()
	total := 0
	for _, a := range s.acked {
		total += len(a)
	}
	d, _ := n.m.Describe("a", 2)
	if total < 100 || n.events.Count("partition_failed") > 0 {
		t.Fatalf("%d acknowledged, %d failures", total, n.events.Count("partition_failed"))
	}
	t.Logf("%d records acknowledged, partition 2 is [%d, %d)", total, d.LogStart, d.End)
}

// TestStormOfDeletions: a topic comes and goes under its producers and consumers; every request is answered.
func TestStormOfDeletions(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	until := time.Now().Add(stormTime)
	var wg sync.WaitGroup
	var good, bad atomic.Int64
	for range 3 {
		wg.Go(func() {
			for time.Now().Before(until) {
				r := n.produce("d", 0, AcksAll, batchOf("v"))
				switch r.Err {
				case protocol.None:
					good.Add(1)
				case protocol.NotLeaderOrFollower, protocol.UnknownTopicOrPartition:
					bad.Add(1)
				default:
					t.Errorf("produce: %v %s", r.Err, r.Message)
				}
			}
		})
		wg.Go(func() {
			for time.Now().Before(until) {
				req := fetchReq("d", 0)
				req.MaxWait = 10 * time.Second
				begin := time.Now()
				r := n.fetch(req)
				if r.Err == protocol.None && len(r.Spans) == 0 && time.Now().Before(until) {
					t.Errorf("a fetch hung for %v", time.Since(begin))
				}
				protocol.ReleaseSpans(r.Spans)
			}
		})
	}
	for time.Now().Before(until) {
		id := b.topic("d", 1, []int32{self})
		await(t, "the topic", func() bool { d, _ := n.m.Describe("d", 0); return d.TopicID == id && d.State == StateLeader })
		time.Sleep(10 * time.Millisecond)
		b.deleteTopic(id)
	}
	await(t, "its removal", func() bool { _, ok := n.m.Describe("d", 0); return !ok })
	wg.Wait()
	if good.Load() == 0 || n.events.Count("partition_failed") > 0 {
		t.Fatalf("%d appended, %d refused, %d failures", good.Load(), bad.Load(), n.events.Count("partition_failed"))
	}
}

// TestWaitsResolveOnce: appends that wait for a follower, while it fetches, the in-sync set changes, deadlines pass and
// leadership comes and goes.
func TestWaitsResolveOnce(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self, 2})
	n.awaitState("a", 0, StateLeader)
	until := time.Now().Add(stormTime)
	var wg sync.WaitGroup
	var codes sync.Map
	for i := range 8 {
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		wg.Go(func() {
			for time.Now().Before(until) {
				timeout := time.Duration(rng.IntN(4)) * time.Millisecond
				r := <-n.produceAsync("a", 0, AcksAll, timeout, batchWith(record.Options{}, time.Now().UnixMilli(), "v"))
				c, _ := codes.LoadOrStore(r.Err, new(atomic.Int64))
				c.(*atomic.Int64).Add(1)
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(until) {
			if d, _ := n.m.Describe("a", 0); d.State == StateLeader {
				n.follow(2, d.End)
			}
			time.Sleep(time.Millisecond)
		}
	})
	wg.Go(func() {
		for i := 0; time.Now().Before(until); i++ {
			b.change(id, 0, func(p *metastore.Partition) {
				if p.ISR = []int32{self, 2}; i%2 == 0 {
					p.ISR = []int32{self}
				}
				if i%3 == 0 {
					p.LeaderEpoch++
				}
			})
			time.Sleep(3 * time.Millisecond)
		}
	})
	wg.Wait()
	got := map[protocol.ErrorCode]int64{}
	codes.Range(func(k, v any) bool {
		got[k.(protocol.ErrorCode)] = v.(*atomic.Int64).Load()
		return true
	})
	if got[protocol.None] == 0 || got[protocol.RequestTimedOut] == 0 {
		t.Errorf("answers: %v", got)
	}
	p := n.m.hosted.Load().names["a"].partitions[0]
	if p.waiting.Load() != 0 || len(p.byHW.entries) != 0 || n.m.deadlines.waiting() != 0 {
		t.Errorf("left behind: %d waiting, %d queued, %d deadlines", p.waiting.Load(), len(p.byHW.entries), n.m.deadlines.waiting())
	}
}
