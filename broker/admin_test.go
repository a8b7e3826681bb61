package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol/record"
)

// TestDynamicConfigs: what is set while the node runs acts before the answer is there, and still does after a restart.
func TestDynamicConfigs(t *testing.T) {
	data := t.TempDir()
	b, _ := start(t, load(t, data))
	c := kafka(t, b, kgo.DefaultProduceTopic("d"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm := kadm.NewClient(c)
	if _, err := adm.CreateTopics(t.Context(), 1, 1, nil, "d", "own"); err != nil {
		t.Fatal(err)
	}
	produce := func(c *kgo.Client, topic string, want error) {
		t.Helper()
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 5000)}).FirstErr(); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", topic, err, want)
		}
	}
	alter := func(topic string, op kadm.IncrementalOp, value string) {
		t.Helper()
		name := "max.message.bytes"
		var resp kadm.AlterConfigsResponses
		var err error
		if topic == "" {
			name = "message.max.bytes"
			resp, err = adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: op, Name: name, Value: &value}})
		} else {
			resp, err = adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: op, Name: name, Value: &value}}, topic)
		}
		if err != nil || resp[0].Err != nil {
			t.Fatalf("%v: %+v", err, resp)
		}
	}
	alter("own", kadm.SetConfig, "1000000")
	produce(c, "d", nil)
	alter("", kadm.SetConfig, "4000")
	produce(c, "d", kerr.MessageTooLarge)
	produce(c, "own", nil)
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}

	b, _ = start(t, load(t, data))
	c = kafka(t, b, kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm = kadm.NewClient(c)
	produce(c, "d", kerr.MessageTooLarge)
	confs, err := adm.DescribeTopicConfigs(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range confs[0].Configs {
		if k.Key == "max.message.bytes" && (k.MaybeValue() != "4000" || k.Source != kmsg.ConfigSourceDynamicDefaultBrokerConfig) {
			t.Fatalf("%+v", k)
		}
	}
	alter("", kadm.DeleteConfig, "")
	produce(c, "d", nil)
}

// sessionReader reads partitions of one topic through an incremental fetch session, as clients do.
type sessionReader struct {
	t         *testing.T
	c         *kgo.Client
	topic     [16]byte
	id, epoch int32
	positions map[int32]int64 // of the partitions that it reads
	changed   map[int32]bool  // to be named in the next request
	forget    []int32
	got       map[int32][]string
}

func (r *sessionReader) fetch(maxBytes int32) (told int) {
	r.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionID, req.SessionEpoch = maxBytes, 1, r.id, r.epoch
	topic := kmsg.FetchRequestTopic{Topic: "s", TopicID: r.topic}
	for p, off := range r.positions {
		if r.epoch == 0 || r.changed[p] {
			part := kmsg.NewFetchRequestTopicPartition()
			part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, off, 1<<20
			topic.Partitions = append(topic.Partitions, part)
		}
	}
	if len(topic.Partitions) > 0 {
		req.Topics = append(req.Topics, topic)
	}
	if len(r.forget) > 0 {
		req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "s", TopicID: r.topic, Partitions: r.forget}}
	}
	resp, err := r.c.Broker(1).Request(r.t.Context(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	f := resp.(*kmsg.FetchResponse)
	if f.ErrorCode != 0 {
		r.t.Fatalf("session %d epoch %d: %d", r.id, r.epoch, f.ErrorCode)
	}
	r.changed, r.forget = map[int32]bool{}, nil
	if r.id, r.epoch = f.SessionID, r.epoch+1; r.id == 0 {
		r.epoch = 0
	}
	for _, topic := range f.Topics {
		for i := range topic.Partitions {
			told++
			r.take(&topic.Partitions[i])
		}
	}
	return told
}

func (r *sessionReader) take(p *kmsg.FetchResponseTopicPartition) {
	r.t.Helper()
	if p.ErrorCode != 0 {
		r.t.Fatalf("partition %d at %d: %d", p.Partition, r.positions[p.Partition], p.ErrorCode)
	}
	for buf := p.RecordBatches; len(buf) > 0; {
		b, rest, err := record.Next(buf)
		if err != nil {
			r.t.Fatal(err)
		}
		err = b.Each(func(x *record.Record) error {
			if x.Offset >= r.positions[p.Partition] {
				r.got[p.Partition] = append(r.got[p.Partition], string(x.Value))
				r.positions[p.Partition], r.changed[p.Partition] = x.Offset+1, true
			}
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
		buf = rest
	}
}

// TestSessionsOverTheWire: whatever the order in which partitions are written, taken in and given up, a session brings every
// record once, and in the end has nothing more to say.
func TestSessionsOverTheWire(t *testing.T) {
	const parts = 5
	b, _ := start(t, load(t, t.TempDir()))
	c := kafka(t, b, kgo.DefaultProduceTopic("s"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	made, err := kadm.NewClient(c).CreateTopic(t.Context(), parts, 1, nil, "s")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := &sessionReader{t: t, c: c, topic: made.ID, positions: map[int32]int64{}, changed: map[int32]bool{}, got: map[int32][]string{}}
		want, left := map[int32][]string{}, map[int32]int64{}
		ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		ends.Each(func(o kadm.ListedOffset) { left[o.Partition] = o.Offset })
		for i := range 150 {
			p := rng.Int32N(parts)
			switch _, in := r.positions[p]; rng.IntN(5) {
			case 0, 1:
				v := fmt.Sprintf("%d/%d/%d", seed, p, i)
				if err := c.ProduceSync(t.Context(), &kgo.Record{Partition: p, Value: []byte(v)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
				want[p] = append(want[p], v)
			case 2:
				if in {
					left[p] = r.positions[p]
					r.forget = append(r.forget, p)
					delete(r.positions, p)
					delete(r.changed, p)
				} else if len(r.forget) == 0 {
					r.positions[p], r.changed[p] = left[p], true
				}
			default:
				r.fetch([]int32{1, 300, 1 << 20}[rng.IntN(3)])
			}
		}
		r.fetch(1 << 20) // what was given up is forgotten
		for p := range int32(parts) {
			if _, in := r.positions[p]; !in {
				r.positions[p], r.changed[p] = left[p], true
			}
		}
		for r.fetch(1<<20) > 0 {
		}
		for p := range int32(parts) {
			if fmt.Sprint(r.got[p]) != fmt.Sprint(want[p]) {
				t.Fatalf("seed %d partition %d: got %v, want %v", seed, p, r.got[p], want[p])
			}
		}
	}
}
