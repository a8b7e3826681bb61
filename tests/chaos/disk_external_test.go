//go:build external

package chaos

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/s3server"
)

// TestFullDiskWhileTheStoreIsAway: partitions that wait for the store take nothing more before the disk is full, one that does not
// go there goes on; what is there reads, and all goes on by itself when the store is back and has made room; nothing
// acknowledged is lost, nothing is written twice.
func TestFullDiskWhileTheStoreIsAway(t *testing.T) {
	data := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", data).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", data).Run() })
	w := newWorldIn(t, true, data)
	local := newTopic("local", 1, map[string]string{"remote.storage.enable": "false", "retention.bytes": "2097152"})
	delete(local.configs, "local.retention.bytes")
	if err := w.create(local); err != nil {
		t.Fatal(err)
	}
	tr := w.run(newTopic("plain", 2, nil), newTopic("synced", 1, map[string]string{"flush.messages": "1"}))
	for _, kill := range []bool{false, true} {
		w.proxy.Set(s3server.Weather{Blackhole: true})
		w.eventually(time.Minute, func() string {
			if !strings.Contains(w.node.Stderr(), "disk=tight") {
				return "the disk is not tight"
			}
			return ""
		})
		w.goesOn(local)
		time.Sleep(2 * time.Second)
		if strings.Contains(w.node.Stderr(), "msg=log_disk_full") {
			t.Fatal("the disk is full although those that wait for the store are refused before")
		}
		for _, topic := range tr.topics {
			if err := w.hot(topic); err != nil {
				t.Fatal(err)
			}
		}
		if kill {
			w.kill()
		}
		w.proxy.Set(s3server.Weather{})
		tr.verify()
		w.drain()
		w.start()
		tr.verify()
	}
	if err := tr.pause(); err != nil {
		t.Fatal(err)
	}
	defer tr.resume()
	w.settled()
}

// goesOn writes to a topic that does not wait for the store.
func (w *world) goesOn(t *topic) {
	w.t.Helper()
	c := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(2))
	defer c.Close()
	for range 50 {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		err := c.ProduceSync(ctx, &kgo.Record{Topic: t.name, Value: t.parts[0].value(0)}).FirstErr()
		cancel()
		if err != nil {
			w.t.Fatalf("a topic that is not tiered: %v", err)
		}
	}
}

// hot reads what is acknowledged by now and not only in the tier.
func (w *world) hot(t *topic) error {
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	starts, err := w.offsets(ctx, t, localStart)
	if err != nil {
		return err
	}
	ends := make([]int64, len(t.parts))
	for p, l := range t.parts {
		ends[p] = l.end()
	}
	return w.read(ctx, t, starts, ends, nil)
}
