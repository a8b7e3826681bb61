package edge

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol/record"
)

func recordsOf(values ...string) (record.Options, int64, []string) {
	return record.Options{}, time.Now().UnixMilli(), values
}

// batch builds one record batch. Records get the key "k".
func batch(o record.Options, ms int64, values []string) []byte {
	return keyedBatch(o, ms, []byte("k"), values)
}

func keyedBatch(o record.Options, ms int64, key []byte, values []string) []byte {
	b := record.NewBuilder(o)
	for _, v := range values {
		if err := b.Add(ms, key, []byte(v)); err != nil {
			panic(err)
		}
	}
	out, err := b.Batch()
	if err != nil {
		panic(err)
	}
	return out
}

// bent changes a batch and makes its CRC right again.
func bent(b []byte, edit func([]byte)) []byte {
	edit(b)
	const crcAt, attributesAt = 17, 21
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func produce(e *env, version int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, -1, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, e.ids[topic]
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// sends is a Produce of these records to edge-a, partition 1.
func sends(records func() []byte) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) { return produce(e, 9, topicA, 1, records()), nil }
}

func one() []byte { return batch(recordsOf("x")) }

func produceCases() []Case {
	ask := func(version int16, topic string, partition int32, edit func(*kmsg.ProduceRequest)) func(*env) (kmsg.Request, error) {
		return func(e *env) (kmsg.Request, error) {
			r := produce(e, version, topic, partition, one())
			if edit != nil {
				edit(r)
			}
			return r, nil
		}
	}
	acks := func(n int16) func(*kmsg.ProduceRequest) { return func(r *kmsg.ProduceRequest) { r.Acks = n } }
	return []Case{
		{Name: "produce", request: ask(9, topicA, 1, nil)},
		{Name: "produce by id", request: ask(13, topicA, 1, nil)},
		{Name: "produce with acks 1", request: ask(3, topicA, 1, acks(1))},
		{Name: "produce with acks 2", request: ask(9, topicA, 1, acks(2))},
		{Name: "produce with acks -2", request: ask(9, topicA, 1, acks(-2))},
		{Name: "produce to an unknown topic", request: ask(9, "edge-nobody", 0, nil)},
		{Name: "produce to an illegal name", request: ask(9, "no spaces", 0, nil)},
		{Name: "produce to an unknown partition", request: ask(9, topicA, 9, nil)},
		{Name: "produce to a negative partition", request: ask(9, topicA, -1, nil)},
		{Name: "produce to the id of a deleted topic", request: ask(13, topicGone, 0, nil)},
		{Name: "produce to no id", request: ask(13, "edge-nobody", 0, nil)},
		{Name: "produce nothing", request: sends(func() []byte { return []byte{} })},
		{Name: "produce null", request: sends(func() []byte { return nil })},
		{Name: "produce without a key to a compacted topic", request: func(e *env) (kmsg.Request, error) {
			return produce(e, 9, topicCompact, 0, keyedBatch(record.Options{}, time.Now().UnixMilli(), nil, []string{"x"})), nil
		}},
	}
}

// batchCases are record batches that are not as they should be.
func batchCases() []Case {
	now := time.Now().UnixMilli()
	bend := func(edit func([]byte)) func(*env) (kmsg.Request, error) {
		return sends(func() []byte { return bent(batch(recordsOf("x", "y")), edit) })
	}
	from := func(id int64, epoch int16, sequence int32) func(*env) (kmsg.Request, error) {
		return sends(func() []byte {
			return batch(record.Options{Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: sequence}}, now, []string{"x"})
		})
	}
	const day = 24 * 60 * 60 * 1000
	return []Case{
		{Name: "a batch with a wrong CRC", request: sends(func() []byte { b := one(); b[len(b)-1] ^= 1; return b })},
		{Name: "a batch of magic 1", request: bend(func(b []byte) { b[16] = 1 })},
		{Name: "a batch of magic 3", request: bend(func(b []byte) { b[16] = 3 })},
		{Name: "two batches", request: sends(func() []byte { return append(one(), one()...) })},
		{Name: "half a batch", request: sends(func() []byte { b := one(); return b[:len(b)/2] })},
		{Name: "a batch that says it is longer", request: bend(func(b []byte) { binary.BigEndian.PutUint32(b[8:], uint32(len(b))) })},
		{Name: "a batch with a wrong last offset", request: bend(func(b []byte) { binary.BigEndian.PutUint32(b[23:], 5) })},
		{Name: "a batch that counts wrong", request: bend(func(b []byte) { binary.BigEndian.PutUint32(b[57:], 3) })},
		{Name: "a control batch", request: bend(func(b []byte) { b[22] |= 0x20 })},
		{Name: "a batch of an unknown codec", request: bend(func(b []byte) { b[22] |= 7 })},
		{Name: "a batch too large", request: sends(func() []byte { return batch(recordsOf(string(make([]byte, 1_100_000)))) })},
		{Name: "a record from the day after tomorrow", request: sends(func() []byte { return batch(record.Options{}, now+2*day, []string{"x"}) })},
		{Name: "a batch of a transaction", request: bend(func(b []byte) { b[22] |= 0x10 })},
		{Name: "a batch of a transaction of a producer", request: sends(func() []byte {
			return bent(batch(record.Options{Producer: &record.Producer{ID: 900_002}}, now, []string{"x"}), func(b []byte) { b[22] |= 0x10 })
		})},
		{Name: "a batch for a transactional id", request: func(e *env) (kmsg.Request, error) {
			r := produce(e, 9, topicA, 1, one())
			r.TransactionID = kmsg.StringPtr("edge")
			return r, nil
		}},
		{Name: "a batch of a producer without a sequence", request: from(900_003, 0, -1)},
		{Name: "a batch of a producer of a negative epoch", request: from(900_003, -1, 0)},
		{Name: "first records of a producer", request: from(900_001, 0, 0)},
		{Name: "the same records again", request: from(900_001, 0, 0)},
		{Name: "records after a gap", request: from(900_001, 0, 5)},
		{Name: "a later epoch not from 0 on", request: from(900_001, 2, 3)},
		{Name: "a later epoch", request: from(900_001, 2, 0)},
		{Name: "an earlier epoch", request: from(900_001, 1, 0)},
	}
}
