package group

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"varve/broker/replica"
	"varve/protocol"
	"varve/protocol/record"
)

const (
	never           = int64(math.MaxInt64) // no timer
	maxQueuedEvents = 1 << 16              // requests; a shard that is so far behind refuses more
	maxDrivenEvents = 64                   // that one goroutine takes before it leaves the rest to the loop
)

// phase is how far a shard has come.
type phase uint8

const (
	loading phase = iota
	active
	stopped
)

// shard runs the Machine of one partition at one leader epoch. Events go into a queue; whoever finds that nobody does
// takes them out and steps, one at a time.
type shard struct {
	c       *Coordinator
	topicID protocol.UUID
	index   int32
	epoch   int32
	ctx     context.Context // ends with the shard
	cancel  context.CancelFunc
	due     atomic.Int64 // when a timer is due, from the Coordinator's start on

	machine *Machine // touched by whoever drives only

	mu      sync.Mutex
	phase   phase
	queue   []Event
	running bool
	flight  []*appending // in the order of the log
}

// appending is one append under way.
type appending struct {
	id   uint64
	done bool
	err  protocol.ErrorCode
}

// newShard is called with c.mu held.
func newShard(c *Coordinator, topicID protocol.UUID, index, epoch int32) *shard {
	s := &shard{c: c, topicID: topicID, index: index, epoch: epoch}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	s.due.Store(never)
	return s
}

// post queues an event. drive says that the caller has to. The code says why the event was not taken.
func (s *shard) post(ev Event) (drive bool, err protocol.ErrorCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase == loading:
		return false, protocol.CoordinatorLoadInProgress
	case s.phase == stopped:
		return false, protocol.NotCoordinator
	case len(s.queue) >= maxQueuedEvents:
		return false, protocol.CoordinatorNotAvailable
	}
	s.queue = append(s.queue, ev)
	return s.begin(), protocol.None
}

// begin makes the caller the one who drives, if nobody does. The caller holds mu.
func (s *shard) begin() bool {
	if s.running || len(s.queue) == 0 {
		return false
	}
	s.running = true
	return true
}

// tell queues an event of the Coordinator's own for the loop; a shard that is not active needs none.
func (s *shard) tell(ev Event) {
	s.mu.Lock()
	drive := false
	if s.phase == active {
		s.queue = append(s.queue, ev)
		drive = s.begin()
	}
	s.mu.Unlock()
	if drive && !s.c.hand(s) {
		s.drive()
	}
}

// activate takes over a loaded machine and begins.
func (s *shard) activate(m *Machine, loaded Loaded) {
	s.mu.Lock()
	if s.phase != loading {
		s.mu.Unlock()
		return
	}
	s.machine, s.phase, s.queue, s.running = m, active, []Event{loaded}, true
	s.mu.Unlock()
	s.drive()
}

// stop answers all that waits and takes no more.
func (s *shard) stop() {
	s.cancel()
	s.mu.Lock()
	was := s.phase
	s.phase = stopped
	drive := false
	if was == active {
		s.queue = append(s.queue, Stop{Err: protocol.NotCoordinator})
		drive = s.begin()
	}
	s.mu.Unlock()
	if drive {
		s.drive()
	}
}

// drive steps through the queue. Whoever calls it was told to.
func (s *shard) drive() {
	for n := 0; ; n++ {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.queue, s.running = nil, false
			s.publish()
			s.mu.Unlock()
			return
		}
		ev := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		s.step(ev)
		if n >= maxDrivenEvents && s.c.hand(s) {
			return
		}
	}
}

// publish tells the loop when the next timer is due. The caller holds mu and drove.
func (s *shard) publish() {
	due := never
	if at, ok := s.machine.Next(); ok {
		due = int64(at.Sub(s.c.start))
	}
	if was := s.due.Swap(due); due < was {
		s.c.wake()
	}
}

func (s *shard) step(ev Event) {
	now := s.c.o.Now()
	out := s.machine.Step(now, ev)
	for _, a := range out.Appends {
		s.append(now, a)
	}
	for _, a := range out.Answers {
		a.To.(*ticket).done(a.Result)
	}
	for _, e := range out.Events {
		s.c.o.Events.Emit(e)
	}
}

func (s *shard) append(now time.Time, a Append) {
	w := &appending{id: a.ID}
	s.mu.Lock()
	s.flight = append(s.flight, w)
	s.mu.Unlock()
	b := record.NewBuilder(record.Options{LeaderEpoch: s.epoch, Codec: s.c.codec})
	var batch record.Batch
	var err error
	for _, r := range a.Records {
		if err = b.Add(now.UnixMilli(), r.Key, r.Value); err != nil {
			break
		}
	}
	if err == nil {
		batch, err = b.Batch()
	}
	if err != nil {
		s.appended(w, protocol.MessageTooLarge) // nothing else is refused of records of our own
		return
	}
	s.c.o.Replicas.AppendCoordinator(replica.CoordinatorAppend{
		TopicID: s.topicID, Partition: s.index, LeaderEpoch: s.epoch, Batch: batch, Timeout: s.c.timeout,
	}, func(res replica.AppendResult) { s.appended(w, res.Err) })
}

// appended notes how an append ended and tells the machine in the order of the log. It may be called by whoever moved the
// high watermark, so it leaves the work to the loop.
func (s *shard) appended(w *appending, err protocol.ErrorCode) {
	s.mu.Lock()
	w.done, w.err = true, err
	if s.phase == stopped {
		s.flight = nil
		s.mu.Unlock()
		return
	}
	for len(s.flight) > 0 && s.flight[0].done {
		s.queue = append(s.queue, Appended{ID: s.flight[0].id, Err: s.flight[0].err})
		s.flight = s.flight[1:]
	}
	drive := s.begin()
	s.mu.Unlock()
	if drive && !s.c.hand(s) {
		s.drive()
	}
}
