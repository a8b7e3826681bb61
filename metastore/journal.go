package metastore

import (
	"bytes"
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// DefaultJournalEntries is how many entries the outbox holds before topic and config changes are refused with PolicyViolation. At twice
// as many, FINISHED, REPLACE and deletions are refused with ThrottlingQuotaExceeded and stay as they were, to be tried again. Log-start
// moves and producer-id blocks are always taken: there is at most one of each partition, and one.
const DefaultJournalEntries = 100_000

// record adds to the entry of this command.
func (t *tx) record(r *metapb.JournalRecord) {
	if t.img.cluster.Journal {
		t.records = append(t.records, r)
	}
}

func (t *tx) journalHasRoom() error {
	if t.img.cluster.Journal && t.img.cluster.JournalEntries >= t.journalLimit {
		return protocol.Errorf(protocol.PolicyViolation,
			"the metadata journal has %d entries that the object store has not taken: no topic or config changes until it does", t.img.cluster.JournalEntries)
	}
	return nil
}

func (t *tx) journalTakesSegments() error {
	if t.img.cluster.Journal && t.img.cluster.JournalEntries >= 2*t.journalLimit {
		return protocol.Errorf(protocol.ThrottlingQuotaExceeded,
			"the metadata journal has %d entries that the object store has not taken: try again later", t.img.cluster.JournalEntries)
	}
	return nil
}

// flushJournal queues the entry of this command under its Raft index.
func (t *tx) flushJournal() {
	if len(t.records) == 0 {
		return
	}
	t.setProto(u64Key(nsJournal, t.index), &metapb.JournalEntry{Index: t.index, TimeMs: t.timeMs, Records: t.records})
	t.img.cluster.JournalEntries++
}

// recordLatest queues a record of which only the newest matters, and takes back the older one that still waits; at holds its index.
func (t *tx) recordLatest(at []byte, r *metapb.JournalRecord) {
	if !t.img.cluster.Journal {
		return
	}
	if b := t.get(at); len(b) == 8 {
		t.takeBack(u64Key(nsJournal, binary.BigEndian.Uint64(b)), at)
	}
	t.set(at, binary.BigEndian.AppendUint64(nil, t.index))
	t.record(r)
}

// takeBack removes the record that at stands for from an entry, and the entry if it says nothing else.
func (t *tx) takeBack(entry, at []byte) {
	b := t.get(entry)
	if b == nil {
		return
	}
	e := t.journalEntry(b)
	e.Records = slices.DeleteFunc(e.Records, func(r *metapb.JournalRecord) bool { return bytes.Equal(latestKey(r), at) })
	if len(e.Records) > 0 {
		t.setProto(entry, e)
		return
	}
	t.del(entry)
	t.img.cluster.JournalEntries--
}

func (t *tx) journalEntry(b []byte) *metapb.JournalEntry {
	e := &metapb.JournalEntry{}
	if err := proto.Unmarshal(b, e); err != nil {
		t.fail(&protocol.CorruptionError{Where: "metastore journal entry", What: err.Error()})
	}
	return e
}

// latestKey is where the index of a record stands of which only the newest matters; nil for others.
func latestKey(r *metapb.JournalRecord) []byte {
	if m := r.GetLogStart(); m != nil {
		if id, ok := uuidOf(m.TopicId); ok {
			return partKey(nsLatest, id, m.Partition)
		}
	}
	if r.GetProducerIds() != nil {
		return producerIDsKey()
	}
	return nil
}

// NewestCounts reports whether only the newest record of its kind matters: an older one that still waits in the outbox is taken back,
// alone, and its entry keeps what else it says.
func NewestCounts(r *metapb.JournalRecord) bool { return latestKey(r) != nil }

func producerIDsKey() []byte { return partKey(nsLatest, protocol.UUID{}, 0) }

// recordLogStart queues a log-start move. Records of deletions carry the log start of their own time, so the journal makes sense at every
// index though older moves are taken back.
func (t *tx) recordLogStart(topic protocol.UUID, partition int32, off int64) {
	t.recordLatest(partKey(nsLatest, topic, partition), &metapb.JournalRecord{Body: &metapb.JournalRecord_LogStart{LogStart: &metapb.LogStartMoved{
		TopicId: topic[:], Partition: partition, LogStart: off,
	}}})
}

// recordProducerIDs queues the first producer id that was not given out yet. Its place is that of no topic.
func (t *tx) recordProducerIDs(next int64) {
	t.recordLatest(producerIDsKey(), &metapb.JournalRecord{Body: &metapb.JournalRecord_ProducerIds{ProducerIds: &metapb.ProducerIds{Next: next}}})
}

func (t *tx) journalClear(c *metapb.JournalClear) (Result, error) {
	through := c.GetThrough()
	if through >= t.index {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "journal cleared through %d at index %d", through, t.index)
	}
	if through <= t.img.cluster.JournaledThrough {
		return Result{}, nil
	}
	t.dropJournal(through)
	t.img.cluster.JournaledThrough = through
	return Result{}, nil
}

// dropJournal removes the entries up to an index, with what points to them.
func (t *tx) dropJournal(through uint64) {
	var gone [][]byte
	var entries int64
	t.scan([]byte{nsJournal}, nil, func(key, value []byte) bool {
		if binary.BigEndian.Uint64(key[1:]) > through {
			return false
		}
		entries++
		for _, r := range t.journalEntry(value).Records {
			if k := latestKey(r); k != nil {
				gone = append(gone, k)
			}
		}
		return t.broken == nil
	})
	for _, key := range gone {
		t.del(key)
	}
	t.fail(t.batch.DeleteRange([]byte{nsJournal}, u64Key(nsJournal, through+1), nil))
	t.img.cluster.JournalEntries -= entries
}

// journalSwitch turns the outbox on or off. What is queued is dropped when it goes off: nobody would take it. When it goes on, the first
// entry restates all topics and configs.
func (t *tx) journalSwitch(c *metapb.JournalSwitch) (Result, error) {
	on := c.GetEnabled()
	if on == t.img.cluster.Journal {
		return Result{}, nil
	}
	if !on {
		t.dropJournal(t.index)
		t.img.cluster.Journal = false
		return Result{}, nil
	}
	t.img.cluster.Journal = true
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_Restated{Restated: &metapb.Restated{Topics: int32(t.img.TopicCount())}}})
	for topic := range t.img.Topics() {
		t.record(topicRecord(topic))
	}
	for it := t.img.configs.Iterator(); !it.Done(); {
		name, bc, _ := it.Next()
		t.record(brokerConfigRecord(name, bc.Configs))
	}
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_ProducerIds{ProducerIds: &metapb.ProducerIds{Next: t.img.cluster.NextProducerID}}})
	return Result{}, nil
}
