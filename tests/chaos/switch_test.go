package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestSwitches turns tiering off, on and read-only, changes retention and deletes records of a topic that is written to and read,
// and makes and deletes another, with crashes at any moment. Every acknowledged record between log start and end reads, and in
// the end the bucket holds what the metastore says.
func TestSwitches(t *testing.T) {
	for _, store := range []string{"dir", "s3"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, store == "s3")
			switched := newTopic("switched", 2, map[string]string{"retention.bytes": "-1"})
			tr := w.run(switched, newTopic("plain", 1, nil))
			for round := range max(*rounds*3/5, 2) { // each of them has several
				clear := w.storm()
				for range 3 {
					w.turn(switched)
					w.sleep(500)
				}
				if round%2 == 0 {
					last := w.live(uint32(round))
					w.remove(last)
				} else {
					w.crash()
				}
				clear()
				if round%2 == 1 {
					tr.verify()
				}
			}
			w.alter(switched, "remote.storage.enable", "true", "remote.log.copy.disable", "false", "local.retention.bytes", "1")
			time.Sleep(time.Second)
			if err := tr.pause(); err != nil {
				t.Fatal(err)
			}
			w.settled()
			tr.resume()
			tr.verify()
			w.alter(switched, off...)
			w.drain()
			w.start()
			tr.verify()
			w.eventually(settleLimit, func() string { return w.gone("switched") })
		})
	}
}

var off = []string{"remote.storage.enable", "false", "remote.log.delete.on.disable", "true"}

// turn does one of the things that can be done to a topic, sometimes with a crash at that moment.
func (w *world) turn(t *topic) {
	w.t.Helper()
	var crash sync.WaitGroup
	if w.rng.IntN(3) == 0 {
		crash.Go(w.killer(50))
	}
	n := w.rng.IntN(8)
	var asking sync.WaitGroup
	asking.Go(func() {
		switch n {
		case 0, 1:
			w.alter(t, off...)
		case 2, 3:
			w.alter(t, "remote.storage.enable", "true")
		case 4:
			w.alter(t, "remote.log.copy.disable", "true", "local.retention.bytes", "-2")
		case 5:
			w.alter(t, "remote.log.copy.disable", "false", "local.retention.bytes", "1")
		case 6:
			w.alter(t, "retention.bytes", "6291456")
		case 7:
			w.alter(t, "retention.bytes", "-1")
		}
	})
	crash.Wait()
	w.awake()
	asking.Wait()
	if w.rng.IntN(4) == 0 {
		w.deleteRecords(t)
	}
}

// alter sets configs of a topic: pairs of key and value.
func (w *world) alter(t *topic, pairs ...string) {
	w.t.Helper()
	var set []kadm.AlterConfig
	for i := 0; i < len(pairs); i += 2 {
		set = append(set, kadm.AlterConfig{Name: pairs[i], Value: kadm.StringPtr(pairs[i+1])})
	}
	err := w.insist(func(a *kadm.Client) error {
		got, err := a.AlterTopicConfigs(w.ctx, set, t.name)
		if err == nil {
			err = got[0].Err
		}
		return err
	})
	if err != nil {
		w.t.Errorf("alter %s %v: %v", t.name, pairs, err)
	}
}

// gone says what is left in the bucket of a topic that has left the tier.
func (w *world) gone(name string) string {
	st, err := w.status()
	if err != nil {
		return err.Error()
	}
	for _, p := range st.Partitions {
		if p.Topic == name {
			return fmt.Sprintf("%s-%d is still looked after", name, p.Partition)
		}
	}
	return w.bucketEquals(st)
}
