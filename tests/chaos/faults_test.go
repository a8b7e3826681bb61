package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"varve/tests/s3server"
)

// crash is one way for the node to stop and come back.
func (w *world) crash() {
	w.t.Helper()
	switch n := w.rng.IntN(10); {
	case n < 6:
		w.kill()
	case n < 8:
		w.drain()
		w.start()
	case n < 9:
		w.kill()
		w.sleep(300) // and at once again, in the midst of what follows a start
		w.kill()
	default:
		w.node.Kill()
		w.loseCheckpoint()
		w.start()
	}
}

func (w *world) kill() {
	w.t.Helper()
	w.node.Kill()
	w.start()
}

func (w *world) drain() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	if code, err := w.node.Terminate(ctx); code != 0 || err != nil {
		w.t.Fatalf("SIGTERM: exit code %d, %v", code, err)
	}
}

// loseCheckpoint deletes one of the files that a log directory can do without.
func (w *world) loseCheckpoint() {
	names := []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"}
	name := names[w.rng.IntN(len(names))]
	w.t.Logf("lost: %s", name)
	if err := os.Remove(filepath.Join(w.options.Data, "log", name)); err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
}

// sleep waits for a random time.
func (w *world) sleep(maxMs int) {
	time.Sleep(time.Duration(w.rng.IntN(maxMs)) * time.Millisecond)
}

// storm makes weather at the store and returns what ends it.
func (w *world) storm() (clear func()) {
	w.t.Helper()
	if w.proxy == nil {
		return func() {}
	}
	fair := func() { w.proxy.Set(s3server.Weather{}) }
	switch w.rng.IntN(7) {
	case 0:
		w.proxy.Set(s3server.Weather{Latency: time.Duration(20+w.rng.IntN(200)) * time.Millisecond})
	case 1:
		w.proxy.Set(s3server.Weather{Unavailable: 1 + w.rng.IntN(60)})
	case 2:
		w.proxy.Set(s3server.Weather{Resets: 1 + w.rng.IntN(30), ResetAfter: w.rng.Int64N(1 << 20)})
	case 3:
		w.proxy.Set(s3server.Weather{Blackhole: true})
	case 4:
		w.proxy.Set(s3server.Weather{BytesPerSec: 2 << 20})
	case 5:
		w.server.Kill()
		return func() {
			if err := w.server.Restart(context.WithoutCancel(w.ctx)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return fair
}

// erase deletes partition folders while the node is down. What had settled stays; the rest is lost and said to be.
func (tr *traffic) erase() {
	w := tr.w
	w.t.Helper()
	w.quiet.Lock()
	defer w.quiet.Unlock()
	if err := tr.pause(); err != nil {
		w.t.Fatal(err)
	}
	defer tr.resume()
	st, err := w.status()
	if err != nil {
		w.t.Fatal(err)
	}
	w.alarms.expectLoss(true)
	defer w.alarms.expectLoss(false)
	w.node.Kill()
	gone := tr.eraseSome()
	w.start()
	settled := map[tierPart]int64{}
	for _, p := range st.Partitions {
		settled[tierPart{p.Topic, p.Partition}] = max(p.TierEnd, p.LogStart)
	}
	for _, t := range tr.topics {
		var ends []int64
		w.eventually(20*time.Second, func() string {
			if ends, err = w.offsets(w.ctx, t, logEnd); err != nil {
				return err.Error()
			}
			return ""
		})
		for p, l := range t.parts {
			k := tierPart{t.name, int32(p)}
			switch {
			case !gone[k] && ends[p] != l.end():
				w.t.Fatalf("%v was not erased and ends at %d, not %d", k, ends[p], l.end())
			case ends[p] < settled[k] || ends[p] > l.end():
				w.t.Fatalf("%v was erased and ends at %d; %d had settled, %d were acknowledged", k, ends[p], settled[k], l.end())
			}
			l.cut(ends[p])
		}
	}
}

// eraseSome deletes partition folders, or the whole log directory.
func (tr *traffic) eraseSome() map[tierPart]bool {
	w := tr.w
	w.t.Helper()
	gone := map[tierPart]bool{}
	all := w.rng.IntN(4) == 0
	if all {
		if err := os.RemoveAll(filepath.Join(w.options.Data, "log")); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, t := range tr.topics {
		for p := range t.parts {
			if all || w.rng.IntN(2) == 0 {
				gone[tierPart{t.name, int32(p)}] = true
				if err := os.RemoveAll(filepath.Join(w.options.Data, "log", fmt.Sprintf("%s-%d", t.name, p))); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
	w.t.Logf("erased, all=%v: %v", all, gone)
	return gone
}

// deleteRecords gives up the records below some offset of one partition, in the midst of a batch, of a segment, of anything.
func (w *world) deleteRecords(t *topic) {
	w.t.Helper()
	p := w.rng.IntN(len(t.parts))
	below := w.rng.Int64N(t.parts[p].end() + 1)
	err := w.insist(func(a *kadm.Client) error {
		got, err := a.DeleteRecords(w.ctx, kadm.Offsets{t.name: {int32(p): {Topic: t.name, Partition: int32(p), At: below}}})
		if err == nil {
			err = got.Error()
		}
		if r, _ := got.Lookup(t.name, int32(p)); err == nil && r.LowWatermark < below {
			err = fmt.Errorf("the log starts at %d", r.LowWatermark)
		}
		return err
	})
	if err != nil {
		w.t.Fatalf("delete records of %s-%d below %d: %v", t.name, p, below, err)
	}
	t.starts[p] = max(t.starts[p], below)
}
