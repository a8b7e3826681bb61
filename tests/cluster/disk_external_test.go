//go:build external

package cluster

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/node"
)

// smallDisk mounts a tmpfs for one test.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir
}

// TestStartOnFullDisk: a node that cannot write says so and what to do, and starts once there is room, with what it had.
func TestStartOnFullDisk(t *testing.T) {
	data := smallDisk(t, "64m")
	sets := []string{"varve.topic.remote.storage.enable=false", "log.segment.bytes=1048576"}
	n := node.StartT(t, withSets(data, sets...))
	createTopic(t, n, "kept", 1, nil)
	l := &load{topic: "kept", partitions: 1, seed: 6}
	l.produce(t, n, 4<<20)
	n.Kill()
	ballast := filepath.Join(data, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	_ = f.Close()
	refused(t, withSets(data, sets...), 1, "no space left on device", "make room")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	l.verify(t, node.StartT(t, withSets(data, sets...)))
}

// TestDiskFull fills a small tmpfs: appends are refused with a Kafka error, the broker stays up, what was acknowledged
// reads, and appends go on once there is room.
func TestDiskFull(t *testing.T) {
	data := smallDisk(t, "96m")
	n := node.StartT(t, withSets(data, "varve.topic.remote.storage.enable=false", "log.segment.bytes=4194304"))
	createTopic(t, n, "full", 1, nil)
	ballast := filepath.Join(data, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 60<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := client(t, n, kgo.DefaultProduceTopic("full"), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordRetries(2), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	value := bytes.Repeat([]byte{7}, 256<<10)
	acked, failed := int64(0), error(nil)
	for range 400 {
		r := kgo.Record{Value: append(strconv.AppendInt(nil, acked, 10), value...)}
		if failed = c.ProduceSync(t.Context(), &r).FirstErr(); failed != nil {
			break
		}
		if r.Offset != acked {
			t.Fatalf("record %d got offset %d", acked, r.Offset)
		}
		acked++
	}
	if failed == nil {
		t.Fatal("100 MB went onto a disk of 36 MB")
	}
	t.Logf("after %d records: %v", acked, failed)
	readValues(t, n, acked)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() string {
		r := kgo.Record{Value: append(strconv.AppendInt(nil, acked, 10), value...)}
		if err := c.ProduceSync(t.Context(), &r).FirstErr(); err != nil {
			return "with room again: " + err.Error()
		}
		return ""
	})
	readValues(t, n, acked+1)
	n.Kill()
	n = node.StartT(t, withSets(data, "varve.topic.remote.storage.enable=false"))
	readValues(t, n, acked+1)
}

// readValues reads from 0: each value begins with its number.
func readValues(t *testing.T, n *node.Node, count int64) {
	t.Helper()
	c := client(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"full": {0: kgo.NewOffset().At(0)}}))
	for at := int64(0); at < count; {
		f := c.PollFetches(t.Context())
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != at || !strings.HasPrefix(string(r.Value[:20]), strconv.FormatInt(at, 10)+"\a") {
				t.Fatalf("offset %d holds %q, want record %d", r.Offset, r.Value[:20], at)
			}
			at++
		})
	}
}

// TestSendfile counts with strace who moves a hot read's bytes.
func TestSendfile(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	o := withSets(t.TempDir(), "varve.topic.remote.storage.enable=false")
	o.Wrap = []string{"strace", "-f", "-qq", "-e", "trace=sendfile,write,writev,sendto,sendmsg", "-e", "signal=none", "-s", "0", "-o", trace}
	n := node.StartT(t, o)
	createTopic(t, n, "hot", 1, nil)
	l := &load{topic: "hot", partitions: 1, seed: 9}
	l.produce(t, n, 64<<20)
	before := moved(t, trace)
	l.verify(t, n)
	n.Kill()
	after := moved(t, trace)
	file, other := after.sendfile-before.sendfile, after.other-before.other
	t.Logf("sendfile %d bytes, other writes %d bytes", file, other)
	// The first and the last 16 KiB of an answer of 1 MiB leave in the writes beside the sendfile (netio, sendfileEdgeBytes).
	if file+other < 64<<20 || float64(file) < 0.96*float64(file+other) {
		t.Fatalf("sendfile moved %d of %d bytes", file, file+other)
	}
}

type movedBytes struct{ sendfile, other int64 }

func moved(t *testing.T, trace string) (m movedBytes) {
	t.Helper()
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		i := strings.LastIndex(line, "= ")
		if i < 0 {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(line[i+2:]), 10, 64)
		if err != nil || n <= 0 {
			continue
		}
		if strings.Contains(line, "sendfile") {
			m.sendfile += n
		} else {
			m.other += n
		}
	}
	return m
}
