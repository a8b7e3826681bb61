package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/tests/node"
	"varve/tests/s3server"
)

const (
	tierTopic      = "settle"
	tierPartitions = int32(3)
	segmentBytes   = int64(4 << 20)
	localBytes     = int64(8 << 20)
)

// TestLine sends 100 MB through every floor, on each kind of store: produce, seal, settle, free, read back; then the
// same after kill -9, and after the partition folders are gone.
func TestLine(t *testing.T) {
	t.Run("dir", func(t *testing.T) { line(t, nil, nil) })
	for _, scheme := range []string{"s3", "minio"} {
		t.Run(scheme, func(t *testing.T) {
			s := s3server.Start(t)
			url := fmt.Sprintf("%s://%s/settled?endpoint=%s&region=us-east-1&path-style=true", scheme, s.Bucket, s.Endpoint)
			if scheme == "minio" {
				url = fmt.Sprintf("minio://%s/settled?endpoint=%s", s.Bucket, s.Endpoint)
			}
			line(t, []string{"--set", "varve.tier.url=" + url},
				[]string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey})
		})
	}
}

func line(t *testing.T, args, env []string) {
	data := t.TempDir()
	o := node.Options{Data: data, Args: append(append([]string{}, localPorts...), args...), Env: env}
	o.Args = append(o.Args, "--set", "remote.log.manager.task.interval.ms=200", "--set", "log.retention.check.interval.ms=500",
		"--set", "replica.high.watermark.checkpoint.interval.ms=200")
	n := node.StartT(t, o)
	createTopic(t, n, tierTopic, tierPartitions, map[string]string{
		"segment.bytes": fmt.Sprint(segmentBytes), "local.retention.bytes": fmt.Sprint(localBytes),
	})
	l := &load{topic: tierTopic, partitions: tierPartitions, seed: 7}
	l.produce(t, n, 105<<20)
	awaitFreed(t, data)
	oneObjectPerSegment(t, n, env)
	l.verify(t, n)

	n.Kill()
	n = node.StartT(t, o)
	l.verify(t, n)
	l.produce(t, n, 4<<20) // the crashed node goes on where it was
	l.verify(t, n)

	time.Sleep(1500 * time.Millisecond) // the high watermarks are checkpointed meanwhile
	n.Kill()
	erased(t, o, data, l)
}

// awaitFreed waits until no partition keeps more than local.retention.bytes and one segment.
func awaitFreed(t *testing.T, data string) {
	t.Helper()
	eventually(t, time.Minute, func() string {
		for p := range tierPartitions {
			if got := logBytes(t, data, p); got > localBytes+segmentBytes {
				return fmt.Sprintf("partition %d keeps %d local log bytes, more than %d", p, got, localBytes+segmentBytes)
			}
		}
		return ""
	})
}

func logBytes(t *testing.T, data string, p int32) (sum int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(data, "log", fmt.Sprintf("%s-%d", tierTopic, p), "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if st, err := os.Stat(name); err == nil {
			sum += st.Size()
		}
	}
	return sum
}

// oneObjectPerSegment lists the tier with the tool, which needs no broker, and compares it with the offsets: objects of a
// partition follow each other without gap or overlap from 0 at least to the local start.
func oneObjectPerSegment(t *testing.T, n *node.Node, env []string) {
	t.Helper()
	starts := localStarts(t, n, tierTopic, tierPartitions)
	next := make([]int64, tierPartitions)
	for _, o := range tierObjects(t, n, env) {
		if o.Base != next[o.Partition] {
			t.Fatalf("partition %d: object starts at %d, the one before ended at %d", o.Partition, o.Base, next[o.Partition])
		}
		if o.Bytes > 2*segmentBytes {
			t.Fatalf("object %s holds %d bytes: more than a segment", o.Key, o.Bytes)
		}
		next[o.Partition] = o.Next
	}
	for p := range next {
		if next[p] < starts[p] || starts[p] == 0 {
			t.Fatalf("partition %d: tier ends at %d, local log starts at %d", p, next[p], starts[p])
		}
	}
}

// erased deletes the partition folders and keeps the metastore: what settled reads, what had not is reported as lost.
func erased(t *testing.T, o node.Options, data string, l *load) {
	t.Helper()
	for p := range tierPartitions {
		if err := os.RemoveAll(filepath.Join(data, "log", fmt.Sprintf("%s-%d", tierTopic, p))); err != nil {
			t.Fatal(err)
		}
	}
	n := node.StartT(t, o)
	ends := endOffsets(t, n, tierTopic, tierPartitions)
	got := consumeAll(t, n, tierTopic, tierPartitions, nil)
	for p := range got {
		if got[p].records != ends[p] || ends[p] == 0 || ends[p] > l.sums[p].records {
			t.Fatalf("partition %d: read %d records, end %d of %d written", p, got[p].records, ends[p], l.sums[p].records)
		}
		lost := fmt.Sprintf("msg=offsets_lost topic=%s partition=%d from=%d to=%d", tierTopic, p, ends[p], l.sums[p].records)
		if !strings.Contains(n.Stderr(), lost) {
			t.Fatalf("stderr does not say %q", lost)
		}
	}
	fresh := &load{topic: tierTopic, partitions: tierPartitions, seed: 8}
	fresh.produce(t, n, 1<<20)
	after := endOffsets(t, n, tierTopic, tierPartitions)
	for p := range after {
		if after[p] != ends[p]+fresh.sums[p].records {
			t.Fatalf("partition %d: end %d after %d more on %d", p, after[p], fresh.sums[p].records, ends[p])
		}
	}
	consumeAll(t, n, tierTopic, tierPartitions, after)
}

// tierObject is a segment object as `varve tier ls` tells it.
type tierObject struct {
	Key       string `json:"key"`
	Kind      string `json:"kind"`
	Bytes     int64  `json:"bytes"`
	Partition int32  `json:"partition"`
	Base      int64  `json:"base"`
	Next      int64  `json:"next"`
}

// tierObjects lists the segments of a tier with the tool, which asks the store and no broker.
func tierObjects(t *testing.T, n *node.Node, env []string) (out []tierObject) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node.Binary(t), "tier", "ls", n.Tier, "--format", "json")
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("tier ls: %v %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var o tierObject
		if err := dec.Decode(&o); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatalf("tier ls: %v in %s", err, raw)
		}
		if o.Kind == "segment" {
			out = append(out, o)
		}
	}
}
