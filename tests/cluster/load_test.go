package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
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

// localPorts lets a node pick free ports; the ready line says which.
var localPorts = []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0"}

func client(t testing.TB, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Kafka)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func createTopic(t testing.TB, n *node.Node, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	conf := make(map[string]*string, len(configs))
	for k, v := range configs {
		conf[k] = kadm.StringPtr(v)
	}
	adm := kadm.NewClient(client(t, n))
	if _, err := adm.CreateTopic(t.Context(), partitions, 1, conf, topic); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

// load is a reproducible set of records: the same seed gives the same bytes, so only digests are kept.
type load struct {
	topic      string
	partitions int32
	seed       uint64
	sums       []digest
}

// digest is the running hash of a partition's records in order.
type digest struct {
	records int64
	bytes   int64
	sum     [32]byte
}

func (d *digest) add(key, value []byte) {
	var head [48]byte
	copy(head[:32], d.sum[:])
	binary.BigEndian.PutUint64(head[32:], uint64(len(key)))
	binary.BigEndian.PutUint64(head[40:], uint64(len(value)))
	h := sha256.New()
	h.Write(head[:])
	h.Write(key)
	h.Write(value)
	h.Sum(d.sum[:0])
	d.records++
	d.bytes += int64(len(key) + len(value))
}

// produce sends at least bytes of incompressible records of mixed sizes, evenly over the partitions, and waits for all
// acknowledgements.
func (l *load) produce(t testing.TB, n *node.Node, bytes int64) {
	t.Helper()
	if l.sums == nil {
		l.sums = make([]digest, l.partitions)
	}
	c := client(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(2*time.Millisecond), kgo.MaxBufferedRecords(20_000))
	rng := rand.New(rand.NewPCG(l.seed, uint64(l.sums[0].records)))
	var firstErr error
	for sent := int64(0); sent < bytes; {
		p := int32(rng.IntN(int(l.partitions)))
		key := fmt.Appendf(nil, "k%d-%d", p, l.sums[p].records)
		value := make([]byte, 64+rng.IntN(4096))
		for i := 0; i+8 <= len(value); i += 8 {
			binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
		}
		l.sums[p].add(key, value)
		sent += int64(len(key) + len(value))
		c.Produce(t.Context(), &kgo.Record{Topic: l.topic, Partition: p, Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil && firstErr == nil {
				firstErr = err
			}
		})
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if firstErr != nil {
		t.Fatalf("produce: %v", firstErr)
	}
}

// consumeAll reads every partition from offset 0 to its end (or to ends[p]) and returns the digests; offsets must be
// without gaps.
func consumeAll(t testing.TB, n *node.Node, topic string, partitions int32, ends []int64) []digest {
	t.Helper()
	if ends == nil {
		ends = endOffsets(t, n, topic, partitions)
	}
	from := map[string]map[int32]kgo.Offset{topic: {}}
	left := 0
	for p := range partitions {
		if ends[p] > 0 {
			from[topic][p] = kgo.NewOffset().At(0)
			left++
		}
	}
	c := client(t, n, kgo.ConsumePartitions(from), kgo.FetchMaxPartitionBytes(2<<20), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	sums := make([]digest, partitions)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for left > 0 {
		f := c.PollFetches(ctx)
		for _, e := range f.Errors() {
			t.Fatalf("fetch %s-%d: %v (have %v, want ends %v)", e.Topic, e.Partition, e.Err, sums, ends)
		}
		f.EachRecord(func(r *kgo.Record) {
			d := &sums[r.Partition]
			if r.Offset >= ends[r.Partition] {
				return
			}
			if r.Offset != d.records {
				t.Fatalf("%s-%d: offset %d came after %d", topic, r.Partition, r.Offset, d.records-1)
			}
			d.add(r.Key, r.Value)
			if d.records == ends[r.Partition] {
				left--
			}
		})
	}
	return sums
}

func endOffsets(t testing.TB, n *node.Node, topic string, partitions int32) []int64 {
	t.Helper()
	listed, err := kadm.NewClient(client(t, n)).ListEndOffsets(t.Context(), topic)
	if err != nil || listed.Error() != nil {
		t.Fatalf("list end offsets: %v %v", err, listed.Error())
	}
	return offsetsOf(t, listed, topic, partitions)
}

// localStarts asks for the earliest local offset (timestamp -4).
func localStarts(t testing.TB, n *node.Node, topic string, partitions int32) []int64 {
	t.Helper()
	listed, err := kadm.NewClient(client(t, n)).ListOffsetsAfterMilli(t.Context(), -4, topic)
	if err != nil || listed.Error() != nil {
		t.Fatalf("list local starts: %v %v", err, listed.Error())
	}
	return offsetsOf(t, listed, topic, partitions)
}

func offsetsOf(t testing.TB, listed kadm.ListedOffsets, topic string, partitions int32) []int64 {
	t.Helper()
	out := make([]int64, partitions)
	for p := range partitions {
		o, ok := listed.Lookup(topic, p)
		if !ok {
			t.Fatalf("no offset for %s-%d", topic, p)
		}
		out[p] = o.Offset
	}
	return out
}

func (l *load) verify(t testing.TB, n *node.Node) {
	t.Helper()
	got := consumeAll(t, n, l.topic, l.partitions, nil)
	for p := range got {
		if got[p] != l.sums[p] {
			t.Fatalf("%s-%d: read %d records %d bytes %x, wrote %d records %d bytes %x", l.topic, p,
				got[p].records, got[p].bytes, got[p].sum[:4], l.sums[p].records, l.sums[p].bytes, l.sums[p].sum[:4])
		}
	}
}

// eventually polls until ok or the bound; the last reason is what a failure prints.
func eventually(t testing.TB, bound time.Duration, ok func() (reason string)) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for {
		reason := ok()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s", bound, reason)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
