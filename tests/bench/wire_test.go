package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
	"varve/protocol/record"
)

// piped is a raw client whose peer sends these bytes.
func piped(t *testing.T, sent []byte) *conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write(sent)
		_ = c.Close()
	}()
	c, err := dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func fetchReply(sizes []int, code protocol.ErrorCode) []byte {
	r := kmsg.NewPtrFetchResponse()
	r.Version = fetchVersion
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic = "hot-16"
	for i, n := range sizes {
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.HighWatermark, p.RecordBatches = int32(i), 1, bytes.Repeat([]byte{7}, n)
		if i == len(sizes)-1 {
			p.ErrorCode = int16(code)
		}
		topic.Partitions = append(topic.Partitions, p)
	}
	r.Topics = append(r.Topics, topic)
	return protocol.Encode(nil, r, 1)
}

// TestFetchedCountsWhatKmsgWrote: sizes below, at and far above the client's buffer, and two replies behind each other.
func TestFetchedCountsWhatKmsgWrote(t *testing.T) {
	sizes := []int{0, 1, 4096, 9 << 20, 100}
	c := piped(t, append(fetchReply(sizes, 0), fetchReply(sizes[:1], 0)...))
	for _, want := range [][]int{sizes, sizes[:1]} {
		var got []int
		if err := c.fetched(func(p int32, size int) error { got = append(got, size); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%v, not %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("partition %d: %d bytes, not %d", i, got[i], want[i])
			}
		}
	}
}

func TestFetchedReportsErrorsAndShortReplies(t *testing.T) {
	ignore := func(int32, int) error { return nil }
	if err := piped(t, fetchReply([]int{5, 0}, protocol.NotLeaderOrFollower)).fetched(ignore); !errors.Is(err, protocol.NotLeaderOrFollower) {
		t.Errorf("%v", err)
	}
	whole := fetchReply([]int{100_000}, 0)
	if err := piped(t, whole[:len(whole)-50]).fetched(ignore); err == nil {
		t.Error("a reply that was cut off passed")
	}
}

// TestProduceRepliesAreChecked: the code of every partition is read, where record errors stand in the way too.
func TestProduceRepliesAreChecked(t *testing.T) {
	reply := func(codes ...protocol.ErrorCode) []byte {
		r := kmsg.NewPtrProduceResponse()
		r.Version = produceVersion
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = "t00001"
		for i, code := range codes {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = int32(i), int16(code)
			if code != 0 {
				p.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1}}
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
		head, err := piped(t, protocol.Encode(nil, r, 1)).reply(replyHeadBytes)
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	ok := reply(make([]protocol.ErrorCode, 16)...)
	if err := checkProduced(ok); err != nil {
		t.Error(err)
	}
	for _, bad := range []protocol.ErrorCode{protocol.CorruptMessage, protocol.NotLeaderOrFollower} {
		if err := checkProduced(reply(0, 0, bad)); !errors.Is(err, bad) {
			t.Errorf("code %d gave %v", bad, err)
		}
	}
	for n := range ok {
		if checkProduced(ok[:n]) == nil && n < len(ok)-6 { // what follows the partitions: no tags, how long the reply was held back, no tags
			t.Errorf("a reply that was cut off at %d of %d bytes passed", n, len(ok))
		}
	}
}

// TestBatchesAreValid: what is replayed passes the checks that a broker makes.
func TestBatchesAreValid(t *testing.T) {
	for _, s := range []shape{shape1K, shapeLZ4, shape10K, shape100B, shapeSmall, shape16K, shape1M} {
		raw, err := newBatch(s)
		if err != nil {
			t.Fatal(err)
		}
		b, rest, err := record.Next(raw)
		if err != nil || len(rest) != 0 || b.CheckCRC() != nil || int(b.Count()) != s.records || b.Codec() != s.codec {
			t.Errorf("%v: %v, %d bytes over, %d records", s, err, len(rest), b.Count())
		}
		plain := s.records * s.bytes
		if s.codec != record.None && (len(raw) < plain/4 || len(raw) > plain*3/4) {
			t.Errorf("%v: %d bytes became %d: neither noise nor zeros", s, plain, len(raw))
		}
	}
}

// TestAccountOfThisProcess works for 20 ms by its own CPU clock, however long that takes on a busy machine.
func TestAccountOfThisProcess(t *testing.T) {
	const work = 20 * time.Millisecond
	used, err := measure(os.Getpid(), func() error {
		from, err := cpuOf(os.Getpid())
		for at := from; err == nil && at < from+work; {
			at, err = cpuOf(os.Getpid())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if used.cpu < work || used.cpu > 10*time.Second || used.wall <= 0 || used.peak < 1<<20 {
		t.Errorf("%+v for %v of work", used, work)
	}
	if got := statusField([]byte("Name:\tx y\nVmHWM:\t  1234 kB\n"), "VmHWM"); got != 1234 {
		t.Errorf("VmHWM %d", got)
	}
}
