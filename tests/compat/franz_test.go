package compat

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/node"
)

func TestMain(m *testing.M) {
	code := m.Run()
	node.RemoveBinary()
	os.Exit(code)
}

func start(t *testing.T) *node.Node {
	return node.StartT(t, node.Options{Data: t.TempDir(), Args: []string{
		"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0"}})
}

func client(t *testing.T, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Kafka)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// samples are records as users write them: keys, headers, timestamps, a tombstone, empty and null values, 900 KB.
func samples(codec string) []*kgo.Record {
	big := make([]byte, 900<<10)
	rng := rand.New(rand.NewPCG(1, uint64(len(codec))))
	for i := range big {
		big[i] = byte(rng.Uint32())
	}
	at := func(ms int64) time.Time { return time.UnixMilli(1_700_000_000_000 + ms) }
	out := []*kgo.Record{
		{Key: []byte("key"), Value: []byte("value"), Timestamp: at(0), Headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte{0, 1, 2}}, {Key: "trace", Value: nil}, {Key: "", Value: []byte{}}}},
		{Key: []byte("gone"), Value: nil, Timestamp: at(1000)},
		{Key: nil, Value: []byte{}, Timestamp: at(2000)},
		{Key: []byte{}, Value: []byte("umlaut äöü"), Timestamp: at(3000)},
		{Key: []byte("big"), Value: big, Timestamp: at(4000)},
	}
	for i := range 2000 {
		out = append(out, &kgo.Record{Key: fmt.Appendf(nil, "k%d", i%17), Value: bytes.Repeat([]byte(codec), i%50),
			Timestamp: at(5000 + int64(i))})
	}
	return out
}

func same(t *testing.T, got, want *kgo.Record) {
	t.Helper()
	if !bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil) {
		t.Fatalf("offset %d: key %q, want %q", got.Offset, got.Key, want.Key)
	}
	if !bytes.Equal(got.Value, want.Value) || (got.Value == nil) != (want.Value == nil) {
		t.Fatalf("offset %d: value of %d bytes, want %d", got.Offset, len(got.Value), len(want.Value))
	}
	if !got.Timestamp.Equal(want.Timestamp) {
		t.Fatalf("offset %d: timestamp %v, want %v", got.Offset, got.Timestamp, want.Timestamp)
	}
	if len(got.Headers) != len(want.Headers) {
		t.Fatalf("offset %d: %d headers, want %d", got.Offset, len(got.Headers), len(want.Headers))
	}
	for i, h := range got.Headers {
		w := want.Headers[i]
		if h.Key != w.Key || !bytes.Equal(h.Value, w.Value) || (h.Value == nil) != (w.Value == nil) {
			t.Fatalf("offset %d: header %v, want %v", got.Offset, h, w)
		}
	}
}

// TestFranzEveryCodec: franz-go with its defaults, so idempotent, to a topic that its first Metadata creates.
func TestFranzEveryCodec(t *testing.T) {
	n := start(t)
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			topic := "codec-" + name
			c := client(t, n, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(),
				kgo.RecordPartitioner(kgo.ManualPartitioner()))
			want := samples(name)
			if err := c.ProduceSync(t.Context(), want...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			got := read(t, n, topic, kgo.NewOffset().AtStart(), len(want))
			for i := range want {
				if got[i].Offset != int64(i) {
					t.Fatalf("record %d has offset %d", i, got[i].Offset)
				}
				same(t, got[i], want[i])
			}
			byTime(t, n, topic, want)
		})
	}
}

// byTime reads from the middle: the first record at or after a timestamp.
func byTime(t *testing.T, n *node.Node, topic string, want []*kgo.Record) {
	t.Helper()
	mid := len(want) / 2
	got := read(t, n, topic, kgo.NewOffset().AfterMilli(want[mid].Timestamp.UnixMilli()), len(want)-mid)
	if got[0].Offset != int64(mid) {
		t.Fatalf("by time: first offset %d, want %d", got[0].Offset, mid)
	}
	same(t, got[0], want[mid])
	after, err := kadm.NewClient(client(t, n)).ListOffsetsAfterMilli(t.Context(), want[len(want)-1].Timestamp.UnixMilli()+1, topic)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := after.Lookup(topic, 0); o.Err != nil || o.Offset != int64(len(want)) {
		t.Fatalf("after the last record: %+v", o)
	}
}

func read(t *testing.T, n *node.Node, topic string, from kgo.Offset, count int) []*kgo.Record {
	t.Helper()
	c := client(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: from}}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got []*kgo.Record
	for len(got) < count {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("have %d of %d: %v", len(got), count, err)
		}
		got = append(got, f.Records()...)
	}
	if len(got) != count {
		t.Fatalf("read %d records, want %d", len(got), count)
	}
	return got
}

// TestFranzAcks: acks 0 and 1 without idempotence, and all with it.
func TestFranzAcks(t *testing.T) {
	n := start(t)
	for name, opts := range map[string][]kgo.Opt{
		"none":   {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
		"leader": {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"all":    {kgo.RequiredAcks(kgo.AllISRAcks())},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "acks-" + name
			if _, err := kadm.NewClient(client(t, n)).CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
				t.Fatal(err)
			}
			c := client(t, n, append(opts, kgo.DefaultProduceTopic(topic))...)
			for i := range 500 {
				if err := c.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			for i, r := range read(t, n, topic, kgo.NewOffset().AtStart(), 500) {
				if string(r.Value) != fmt.Sprint(i) {
					t.Fatalf("record %d is %q", i, r.Value)
				}
			}
		})
	}
}

// TestFranzAdmin: what kadm asks of a broker with one topic.
func TestFranzAdmin(t *testing.T) {
	n := start(t)
	adm := kadm.NewClient(client(t, n))
	retention := "3600000"
	if r, err := adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"retention.ms": &retention}, "admin"); err != nil {
		t.Fatalf("%v: %s", err, r.ErrMessage)
	}
	if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, "admin"); err == nil {
		t.Fatal("a topic was created twice")
	}
	if _, err := adm.CreateTopic(t.Context(), 1, 3, nil, "wide"); err == nil {
		t.Fatal("three replicas on one broker were accepted")
	}
	if _, err := adm.CreatePartitions(t.Context(), 3, "admin"); err != nil {
		t.Fatal(err)
	}
	topics, err := adm.ListTopics(t.Context(), "admin")
	if err != nil || len(topics["admin"].Partitions) != 5 {
		t.Fatalf("%v: %d partitions, want 5", err, len(topics["admin"].Partitions))
	}
	confs, err := adm.DescribeTopicConfigs(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, c := range confs[0].Configs {
		if c.Key == "retention.ms" {
			found = c.MaybeValue()
		}
	}
	if found != retention {
		t.Fatalf("retention.ms is %q", found)
	}
	if md, err := adm.BrokerMetadata(t.Context()); err != nil || len(md.Brokers) != 1 || md.Cluster == "" {
		t.Fatalf("%v: %+v", err, md)
	}
	if _, err := adm.DeleteTopic(t.Context(), "admin"); err != nil {
		t.Fatal(err)
	}
	topics, err = adm.ListTopics(t.Context())
	if err != nil || topics.Has("admin") {
		t.Fatalf("%v: deleted topic is still listed", err)
	}
}
