package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"varve/protocol/record"
	"varve/tests/node"
)

// raw sends bytes on a connection of its own and waits until the broker closes it or a second passes.
func raw(t *testing.T, n *node.Node, bytes []byte) (reply []byte) {
	t.Helper()
	c, err := net.Dial("tcp", n.Kafka)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(bytes)
	reply = make([]byte, 4096)
	got, _ := c.Read(reply)
	return reply[:got]
}

// TestHostileFrames: what comes from the wire never takes the broker down nor costs what it claims.
func TestHostileFrames(t *testing.T) {
	n := node.StartT(t, withSets(t.TempDir()))
	createTopic(t, n, "kept", 1, nil)
	l := &load{topic: "kept", partitions: 1, seed: 5}
	l.produce(t, n, 1<<20)
	before, err := n.RSSBytes()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		junk := make([]byte, rng.IntN(600))
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		c, err := net.Dial("tcp", n.Kafka)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(junk)
		_ = c.Close()
	}
	for _, claim := range []uint32{1 << 31, 0xffffffff, 1<<31 - 1, 100 << 20} {
		for range 4 {
			frame := binary.BigEndian.AppendUint32(nil, claim)
			if got := raw(t, n, append(frame, 0, 18, 0, 0)); len(got) != 0 {
				t.Fatalf("a frame of %d bytes was answered with %x", claim, got)
			}
		}
	}
	valid := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 9)
	for cut := range valid {
		c, err := net.Dial("tcp", n.Kafka)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(valid[:cut])
		_ = c.Close()
	}
	after, err := n.RSSBytes()
	if err != nil || after > before+64<<20 {
		t.Fatalf("resident %d bytes before, %d after: %v", before, after, err)
	}
	l.verify(t, n)
}

// batch is a good batch of three records.
func batch(t *testing.T) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.Options{})
	for i := range 3 {
		if err := b.Add(1_700_000_000_000, []byte("k"), fmt.Appendf(nil, "v%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sealed recomputes the CRC, so that what is wrong is found behind it.
func sealed(b record.Batch) record.Batch {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// bomb is a batch whose zstd body is small and unpacks to 3 GB.
func bomb(t *testing.T) record.Batch {
	t.Helper()
	var packed strings.Builder
	w, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 3 << 10 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := append(batch(t)[:record.HeaderLen:record.HeaderLen], packed.String()...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint16(b[21:], 4)
	return sealed(b)
}

// upTo caps Produce at a version that names topics, so that no id has to be looked up.
func upTo(produce int16) *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(0, produce)
	return v
}

// refusals are batches that are not right in one part each, and the errors of which Kafka gives one.
func refusals(t *testing.T) map[string]refusal {
	change := func(at int, b ...byte) record.Batch {
		out := batch(t)
		copy(out[at:], b)
		return sealed(out)
	}
	wrongCRC := batch(t)
	wrongCRC[len(wrongCRC)-1] ^= 1
	big := record.NewBuilder(record.Options{})
	if err := big.Add(1, nil, make([]byte, 1_100_000)); err != nil {
		t.Fatal(err)
	}
	tooBig, err := big.Batch()
	if err != nil {
		t.Fatal(err)
	}
	broken := []*kerr.Error{kerr.InvalidRecord, kerr.CorruptMessage}
	return map[string]refusal{
		"wrong crc":          {wrongCRC, []*kerr.Error{kerr.CorruptMessage}},
		"count too high":     {change(57, 0, 0, 0, 9), broken},
		"count negative":     {change(57, 255, 255, 255, 255), broken},
		"last offset delta":  {change(23, 0, 0, 0, 7), broken},
		"size beyond frame":  {change(8, 0, 0, 127, 0), broken},
		"size negative":      {change(8, 255, 0, 0, 0), broken},
		"size tiny":          {change(8, 0, 0, 0, 3), broken},
		"magic 1":            {change(16, 1), append(broken, kerr.UnsupportedForMessageFormat)},
		"control batch":      {change(21, 0, 32), []*kerr.Error{kerr.InvalidRecord}},
		"gzip of junk":       {change(21, 0, 1), broken},
		"snappy of junk":     {change(21, 0, 2), broken},
		"lz4 of junk":        {change(21, 0, 3), broken},
		"zstd of junk":       {change(21, 0, 4), broken},
		"unknown codec":      {change(21, 0, 6), append(broken, kerr.UnsupportedCompressionType)},
		"two batches":        {append(batch(t), batch(t)...), []*kerr.Error{kerr.InvalidRecord}},
		"no batch":           {[]byte{}, broken},
		"half a batch":       {batch(t)[:40], broken},
		"too large":          {tooBig, []*kerr.Error{kerr.MessageTooLarge, kerr.RecordListTooLarge}},
		"decompression bomb": {bomb(t), append(broken, kerr.MessageTooLarge)},
	}
}

type refusal struct {
	batch []byte
	want  []*kerr.Error
}

// put produces one batch as it is.
func put(t *testing.T, n *node.Node, b []byte) *kerr.Error {
	t.Helper()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = b
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = "strict", []kmsg.ProduceRequestTopicPartition{p}
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 5000
	r.Topics = append(r.Topics, rt)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resp, err := r.RequestWith(ctx, client(t, n, kgo.MaxVersions(upTo(9))))
	if err != nil {
		t.Fatalf("produce: %v", err)
	}
	return kerr.TypedErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// TestHostileBatches: a batch that is not right in any part gets Kafka's error and changes nothing.
func TestHostileBatches(t *testing.T) {
	n := node.StartT(t, withSets(t.TempDir()))
	createTopic(t, n, "strict", 1, map[string]string{"max.message.bytes": "1000000"})
	if err := put(t, n, batch(t)); err != nil {
		t.Fatalf("a good batch was refused: %v", err)
	}
	for name, c := range refusals(t) {
		t.Run(name, func(t *testing.T) {
			if got := put(t, n, c.batch); !slices.Contains(c.want, got) {
				t.Fatalf("answered %v, want one of %v", got, c.want)
			}
		})
	}
	rss, err := n.RSSBytes()
	if err != nil || rss > 300<<20 {
		t.Fatalf("resident %d bytes after the bomb, %v", rss, err)
	}
	if end := endOffsets(t, n, "strict", 1); end[0] != 3 {
		t.Fatalf("log ends at %d, want 3", end[0])
	}
	if err := put(t, n, batch(t)); err != nil {
		t.Fatalf("a good batch was refused afterwards: %v", err)
	}
}
