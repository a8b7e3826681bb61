package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/protocol"
)

// reader is a client that reads partitions through a session, as consumers do.
type reader struct {
	t     *testing.T
	n     *node
	s     FetchSession
	parts map[int]*readPart // by place
}

type readPart struct {
	q    FetchPartition
	from int64 // first offset that was asked for
	got  []kv
	last FetchResult // what it was told last, without records
}

func newReader(t *testing.T, n *node) *reader {
	r := &reader{t: t, n: n, s: n.m.NewSession(), parts: map[int]*readPart{}}
	t.Cleanup(r.s.Close)
	return r
}

func (r *reader) add(topic string, partition int32, off int64) {
	q := fetchReq(topic, off).Partitions[0]
	q.Partition = partition
	r.parts[r.s.Add(q)] = &readPart{q: q, from: off}
}

// fetch takes in what a fetch brings and names the new offsets. It returns the number of partitions in the answer.
func (r *reader) fetch(req *FetchRequest) int {
	r.t.Helper()
	req.Partitions = nil
	results := r.s.Fetch(context.Background(), req)
	for _, res := range results {
		p := r.parts[res.Place]
		if p == nil {
			r.t.Fatalf("an answer for place %d, which is free", res.Place)
		}
		kvs := records(r.t, res.FetchResult)
		for _, x := range kvs {
			if x.off >= p.q.Offset {
				p.got = append(p.got, x)
				p.q.Offset = x.off + 1
			}
		}
		if len(kvs) > 0 {
			r.s.Change(res.Place, p.q)
		}
		res.Spans = nil
		p.last = res.FetchResult
	}
	return len(results)
}

// check compares what the session has brought with what a full fetch brings.
func (r *reader) check() {
	r.t.Helper()
	for r.fetch(fetchReq("", 0)) > 0 && r.pending() {
	}
	for place, p := range r.parts {
		req := fetchReq("", 0)
		req.Partitions = []FetchPartition{p.q}
		full := r.n.fetch(req)
		if full.Err != p.last.Err || full.Err == 0 && (full.HighWatermark != p.last.HighWatermark || full.LogStart != p.last.LogStart || len(full.Spans) > 0) {
			r.t.Fatalf("place %d, %s-%d at %d: told %+v, a full fetch says %+v", place, p.q.Topic, p.q.Partition, p.q.Offset, p.last, full)
		}
		protocol.ReleaseSpans(full.Spans)
		for i, x := range p.got {
			if i > 0 && x.off != p.got[i-1].off+1 {
				r.t.Fatalf("place %d: offset %d follows %d", place, x.off, p.got[i-1].off)
			}
			if want := fmt.Sprintf("%s-%d-%d", p.q.Topic, p.q.Partition, x.off); x.value != want {
				r.t.Fatalf("offset %d is %q, want %q", x.off, x.value, want)
			}
		}
	}
}

// pending says whether some partition that works has not been read to its end.
func (r *reader) pending() bool {
	for _, p := range r.parts {
		if p.last.Err == 0 && p.q.Offset < p.last.HighWatermark {
			return true
		}
	}
	return false
}

// grow appends n records that name themselves.
func grow(t testing.TB, n *node, topic string, partition int32, count int) {
	t.Helper()
	d, ok := n.m.Describe(topic, partition)
	if !ok || d.State != StateLeader {
		return
	}
	for i := range count {
		v := fmt.Sprintf("%s-%d-%d", topic, partition, d.End+int64(i))
		if r := n.produce(topic, partition, AcksAll, batchOf(v)); r.Err != 0 {
			t.Fatalf("produce: %v", r.Err)
		}
	}
}

// Any sequence of changes, and of fetches with any limits, brings the same as full fetches do.
func TestSessionsBringWhatFullFetchesBring(t *testing.T) {
	const parts = 6
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			n, b := newNode(t, nodeOptions{})
			b.topic("a", parts, []int32{self})
			for i := range int32(parts) {
				n.awaitState("a", i, StateLeader)
			}
			rng := rand.New(rand.NewPCG(seed, 9))
			r := newReader(t, n)
			r.add("a", 0, 0)
			for range 250 {
				switch part := rng.Int32N(parts); rng.IntN(10) {
				case 0, 1, 2:
					grow(t, n, "a", part, 1+rng.IntN(3))
				case 3:
					p := n.m.hosted.Load().names["a"].partitions[part]
					led := &led{p: p, log: p.role.Load().log}
					led.LogStartMoved(rng.Int64N(p.hw.Load() + 1))
				case 4:
					r.addOrForget(rng, part)
				case 5:
					r.check()
				default:
					req := fetchReq("", 0)
					req.MaxBytes = []int{0, 1, 200, 1 << 20}[rng.IntN(4)]
					req.ReadCommitted = rng.IntN(2) == 0
					r.fetch(req)
				}
				for place, p := range r.parts { // as clients do
					if p.last.Err == protocol.OffsetOutOfRange {
						d, _ := n.m.Describe("a", p.q.Partition)
						p.q.Offset, p.from, p.got = max(d.LogStart, p.q.Offset), d.LogStart, nil
						r.s.Change(place, p.q)
						p.last.Err = 0
					}
				}
			}
			r.check()
		})
	}
}

// addOrForget takes a partition into the session, or those of it out.
func (r *reader) addOrForget(rng *rand.Rand, partition int32) {
	for place, p := range r.parts {
		if p.q.Partition == partition {
			r.s.Remove(place)
			delete(r.parts, place)
			return
		}
	}
	d, _ := r.n.m.Describe("a", partition)
	r.add("a", partition, d.LogStart+rng.Int64N(d.End-d.LogStart+1))
}

// A partition without news is not looked at again, neither by a fetch nor when others wake it.
func TestIdlePartitionsOfSessionsCostNothing(t *testing.T) {
	const parts = 300
	n, b := newNode(t, nodeOptions{})
	b.topic("a", parts, []int32{self})
	r := newReader(t, n)
	for i := range int32(parts) {
		n.awaitState("a", i, StateLeader)
		r.add("a", i, 0)
	}
	if got := r.fetch(fetchReq("", 0)); got != parts {
		t.Fatalf("the first fetch answered for %d partitions", got)
	}
	count := &n.m.hosted.Load().names["a"].partitions[0].count.fetches
	before := count.Load()
	if got := r.fetch(fetchReq("", 0)); got != 0 {
		t.Fatalf("%d partitions without news", got)
	}
	done := make(chan int)
	go func() { done <- r.fetch(fetchWaiting("", 0)) }()
	await(t, "the fetch to wait", func() bool { return n.m.fetching.Load() == 1 })
	grow(t, n, "a", 77, 1)
	if got := <-done; got != 1 || count.Load() != before+1 {
		t.Fatalf("%d partitions, %d looked at", got, count.Load()-before)
	}
	for i := range parts { // all but one listen; a session that is closed does not
		if w := n.m.hosted.Load().names["a"].partitions[i].fetches.count.Load(); w != 1 && i != 77 {
			t.Fatalf("partition %d has %d listeners", i, w)
		}
	}
	r.s.Close()
	for i := range parts {
		if w := n.m.hosted.Load().names["a"].partitions[i].fetches.count.Load(); w != 0 {
			t.Fatalf("partition %d has %d listeners after the end", i, w)
		}
	}
}

// A session that nobody uses any more is told of one change, not of each.
func TestListenersAreToldOnce(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	r := newReader(t, n)
	r.add("a", 0, 0)
	r.fetch(fetchReq("", 0))
	p := n.m.hosted.Load().names["a"].partitions[0]
	if p.fetches.count.Load() != 1 {
		t.Fatal("it does not listen")
	}
	grow(t, n, "a", 0, 3)
	if p.fetches.count.Load() != 0 {
		t.Fatal("it still listens")
	}
	r.check()
}

// Partitions share a budget that is too small for all: each gets its turn.
func TestSessionsServeAllInTurn(t *testing.T) {
	const parts = 5
	n, b := newNode(t, nodeOptions{})
	b.topic("a", parts, []int32{self})
	r := newReader(t, n)
	for i := range int32(parts) {
		n.awaitState("a", i, StateLeader)
		grow(t, n, "a", i, 3)
		r.add("a", i, 0)
	}
	for range 3 * parts {
		req := fetchReq("", 0)
		req.MaxBytes = 1
		r.fetch(req)
		least, most := 3, 0
		for _, p := range r.parts {
			least, most = min(least, len(p.got)), max(most, len(p.got))
		}
		if most-least > 1 {
			t.Fatalf("one partition has %d records, another %d", most, least)
		}
	}
	r.check()
}

// Topics come and go under a session.
func TestSessionsSeeTopicsRemade(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	first := b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	grow(t, n, "a", 0, 2)
	r := newReader(t, n)
	r.add("a", 0, 0)
	byID := fetchReq("", 0).Partitions[0]
	byID.TopicID = first
	r.parts[r.s.Add(byID)] = &readPart{q: byID}
	r.fetch(fetchReq("", 0))
	r.fetch(fetchReq("", 0))
	done := make(chan int)
	go func() { done <- r.fetch(fetchWaiting("", 0)) }()
	await(t, "the fetch to wait", func() bool { return n.m.fetching.Load() == 1 })
	b.deleteTopic(first)
	if got := <-done; got == 0 {
		t.Fatal("nothing was told of the topic's end")
	}
	b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	grow(t, n, "a", 0, 1)
	r.fetch(fetchReq("", 0))
	for _, p := range r.parts {
		want := protocol.OffsetOutOfRange // by name it is the new topic, which is shorter
		if !p.q.TopicID.IsZero() {
			want = protocol.UnknownTopicID
		}
		if p.last.Err != want {
			t.Fatalf("%+v: told %v, want %v", p.q, p.last.Err, want)
		}
	}
}

// Sessions that wait miss nothing of what is appended meanwhile.
func TestSessionsThatWaitMissNothing(t *testing.T) {
	const parts, count = 8, 150
	n, b := newNode(t, nodeOptions{})
	b.topic("a", parts, []int32{self})
	for i := range int32(parts) {
		n.awaitState("a", i, StateLeader)
	}
	var wg sync.WaitGroup
	for range 2 {
		r := newReader(t, n)
		for i := range int32(parts) {
			r.add("a", i, 0)
		}
		wg.Go(func() {
			for have := 0; have < parts*count; {
				r.fetch(fetchWaiting("", 0))
				have = 0
				for _, p := range r.parts {
					have += len(p.got)
				}
			}
		})
	}
	for i := range int32(parts) {
		wg.Go(func() { grow(t, n, "a", i, count) })
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("a reader waits for what is there")
	}
}

// Sessions read from the tier too, and go on in the local log.
func TestSessionsReadTheTier(t *testing.T) {
	n, _, _ := coldNode(t, newMemTier())
	r := newReader(t, n)
	r.add("a", 0, 0)
	for range 20 {
		req := fetchReq("", 0)
		req.MaxBytes = 1
		r.fetch(req)
	}
	for _, p := range r.parts {
		if len(p.got) != 10 || p.got[9] != (kv{9, "j"}) {
			t.Fatalf("%v", p.got)
		}
	}
	if got := r.fetch(fetchReq("", 0)); got != 0 {
		t.Fatalf("%d partitions although there is nothing new", got)
	}
}

func BenchmarkSessionOfManyPartitions(b *testing.B) {
	const parts = 2000
	n, bk := newNode(b, nodeOptions{})
	bk.topic("a", parts, []int32{self})
	s := n.m.NewSession()
	defer s.Close()
	for i := range int32(parts) {
		n.awaitState("a", i, StateLeader)
		q := fetchReq("a", 0).Partitions[0]
		q.Partition = i
		s.Add(q)
	}
	value := strings.Repeat("x", 100)
	off := int64(0)
	for b.Loop() {
		n.produce("a", 5, AcksAll, batchOf(value))
		for _, r := range s.Fetch(context.Background(), fetchReq("", 0)) {
			protocol.ReleaseSpans(r.Spans)
		}
		off++
		q := fetchReq("a", off).Partitions[0]
		q.Partition = 5
		s.Change(5, q)
	}
}
