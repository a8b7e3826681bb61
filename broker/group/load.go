package group

import (
	"time"

	"varve/protocol"
	"varve/protocol/record"
)

// Waits between two tries to read a partition: its replica may not lead yet.
const (
	minLoadRetry = 5 * time.Millisecond
	maxLoadRetry = 500 * time.Millisecond
)

// load reads the partition, until it succeeds or the shard is stopped.
func (s *shard) load() {
	for wait := minLoadRetry; ; wait = min(2*wait, maxLoadRetry) {
		select {
		case s.c.loading <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		l := &loader{s: s, machine: NewMachine(s.c.settings)}
		err := l.read()
		<-s.c.loading
		if err == nil {
			return
		}
		if code := protocol.CodeOf(err); code != protocol.NotLeaderOrFollower && code != protocol.UnknownLeaderEpoch {
			s.c.o.Events.Emit(LoadFailed{Partition: s.index, LeaderEpoch: s.epoch, Err: err})
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return
		}
	}
}

// loader replays the log of one partition.
type loader struct {
	s                *shard
	machine          *Machine
	records, skipped int64
}

func (l *loader) read() error {
	began := l.s.c.o.Now()
	for at := int64(0); ; {
		if err := l.s.ctx.Err(); err != nil {
			return err
		}
		got, err := l.s.c.o.Replicas.ReadCoordinator(l.s.topicID, l.s.index, l.s.epoch, at, l.s.c.loadSize)
		if err != nil {
			return err
		}
		if err := l.batches(got.Records); err != nil {
			return err
		}
		if at = got.Next; at >= got.End {
			break
		}
	}
	l.s.c.o.Events.Emit(PartitionLoaded{
		Partition: l.s.index, LeaderEpoch: l.s.epoch, Groups: l.machine.Groups(), Offsets: l.machine.Offsets(),
		Records: l.records, Skipped: l.skipped, Took: l.s.c.o.Now().Sub(began),
	})
	l.s.activate(l.machine, Loaded{TopicExists: l.s.c.topicExists})
	return nil
}

func (l *loader) batches(buf []byte) error {
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if err != nil {
			return err
		}
		buf = rest
		if err := b.CheckCRC(); err != nil {
			return err
		}
		if b.Control() || b.Transactional() {
			// There are no transactional offsets yet; what is not known to be committed is not taken for it.
			l.records += int64(b.Count())
			l.skipped += int64(b.Count())
			continue
		}
		if err := b.Each(l.one); err != nil {
			return err
		}
	}
	return nil
}

// one replays a record. One that is not understood does not stop the others.
func (l *loader) one(r *record.Record) error {
	l.records++
	known, err := l.machine.Replay(Record{Key: r.Key, Value: r.Value})
	if err != nil {
		l.s.c.o.Events.Emit(RecordSkipped{Partition: l.s.index, Offset: r.Offset, Err: err})
	}
	if !known {
		l.skipped++
	}
	return nil
}

func (c *Coordinator) topicExists(name string) bool {
	img := c.o.Meta.Image()
	_, ok := img.Topic(name)
	if !ok { // its offsets come back before it can be seen
		_, ok = img.Restoring(name)
	}
	return ok
}
