//go:build external

package chaos

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"varve/tests/s3server"
)

// TestFullDiskWhileTheStoreIsAway: appends are refused, what is there reads, and all goes on by itself when the store is
// back and has made room; nothing acknowledged is lost, nothing is written twice.
func TestFullDiskWhileTheStoreIsAway(t *testing.T) {
	data := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", data).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", data).Run() })
	w := newWorldIn(t, true, data)
	w.alarms.full = true
	tr := w.run(newTopic("plain", 2, nil), newTopic("synced", 1, map[string]string{"flush.messages": "1"}))
	for _, kill := range []bool{false, true} {
		w.proxy.Set(s3server.Weather{Blackhole: true})
		w.eventually(time.Minute, func() string {
			if !strings.Contains(w.node.Stderr(), "msg=log_disk_full") {
				return "the disk is not full"
			}
			return ""
		})
		time.Sleep(2 * time.Second)
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
