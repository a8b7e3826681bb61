package chaos

import (
	"testing"
	"time"
)

// TestCrashes is the main run: nothing is ever deleted but by retention.
func TestCrashes(t *testing.T) {
	for _, store := range []string{"dir", "s3"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, store == "s3")
			tr := w.run(
				newTopic("plain", 3, nil),
				newTopic("synced", 1, map[string]string{"flush.messages": "1"}),
				newTopic("short", 2, map[string]string{"retention.bytes": "4194304"}),
				newTopic("aged", 1, map[string]string{"retention.ms": "4000"}),
			)
			for round := range *rounds {
				clear := w.storm()
				w.sleep(1500)
				if w.rng.IntN(3) == 0 {
					w.deleteRecords(tr.topics[2])
				}
				if w.rng.IntN(4) == 0 {
					clear()
					tr.erase()
				} else {
					w.crash()
					w.sleep(500)
					clear()
				}
				if round%2 == 1 {
					tr.verify()
				}
			}
			time.Sleep(time.Second)
			if err := tr.pause(); err != nil {
				t.Fatal(err)
			}
			w.settled()
			tr.resume()
			tr.verify()
			w.drain()
			w.start()
			tr.verify()
		})
	}
}
