package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/broker/config"
	"varve/protocol/event"
)

func load(t *testing.T, data string, sets ...string) *config.Config {
	t.Helper()
	sets = append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "varve.http.listen=127.0.0.1:0"}, sets...)
	cfg, _, err := config.Load(config.LoadOptions{Data: data, Sets: sets})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func start(t *testing.T, cfg *config.Config) (*Broker, *event.Recorder) {
	t.Helper()
	rec := &event.Recorder{}
	b, err := Start(t.Context(), cfg, Options{Sinks: []event.Sink{rec.Emit}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := b.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	return b, rec
}

func kafka(t *testing.T, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.KafkaAddr())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestLife: records survive drains; each life leads with a higher epoch; the clean-shutdown marker is believed.
func TestLife(t *testing.T) {
	data := t.TempDir()
	const perLife = 300
	lastEpoch := int32(-1)
	for life := range 3 {
		b, rec := start(t, load(t, data))
		c := kafka(t, b, kgo.DefaultProduceTopic("life"))
		if life == 0 {
			if _, err := kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, nil, "life"); err != nil {
				t.Fatal(err)
			}
		}
		for i := range perLife {
			c.Produce(t.Context(), kgo.StringRecord(fmt.Sprintf("%d/%d", life, i)), nil)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := kafka(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"life": {0: kgo.NewOffset().At(0)}}))
		for at := 0; at < (life+1)*perLife; {
			f := r.PollFetches(t.Context())
			if err := f.Err(); err != nil {
				t.Fatal(err)
			}
			f.EachRecord(func(r *kgo.Record) {
				if want := fmt.Sprintf("%d/%d", at/perLife, at%perLife); string(r.Value) != want || r.Offset != int64(at) {
					t.Fatalf("offset %d holds %q, want %q at %d", r.Offset, r.Value, want, at)
				}
				at++
			})
		}
		p, _ := b.replicas.Describe("life", 0)
		if p.LeaderEpoch <= lastEpoch {
			t.Fatalf("life %d leads at epoch %d after %d", life, p.LeaderEpoch, lastEpoch)
		}
		lastEpoch = p.LeaderEpoch
		status(t, b, "/readyz", http.StatusOK)
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rec.Count("drained") != 1 || b.Wait() != nil {
			t.Fatal("a drained node must say so, once, and without an error")
		}
	}
}

func status(t *testing.T, b *Broker, path string, want int) {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTPAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != want {
		t.Fatalf("%s: %s, want %d", path, resp.Status, want)
	}
}

// TestFailedStartLeavesNoMarker: a start that fails after a crash must not make the next one believe in a clean stop, and
// one that fails after a drain must not cost it the marker.
func TestFailedStartLeavesNoMarker(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			data := t.TempDir()
			b, _ := start(t, load(t, data))
			if err := b.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !clean {
				removeMarker(t, data)
			}
			meta := filepath.Join(data, "meta")
			if err := errors.Join(os.Rename(meta, meta+".away"), os.WriteFile(meta, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			_, err := Start(t.Context(), load(t, data), Options{})
			var exit *ExitError
			if !errors.As(err, &exit) || exit.Code != ExitRuntime {
				t.Fatalf("a file where the metadata folder should be: %v", err)
			}
			if err := errors.Join(os.Remove(meta), os.Rename(meta+".away", meta)); err != nil {
				t.Fatal(err)
			}
			b, _ = start(t, load(t, data))
			if _, got := b.logs.CleanShutdown(); got != clean {
				t.Fatalf("clean shutdown is %v after the failed start, was %v before it", got, clean)
			}
		})
	}
}

func removeMarker(t *testing.T, data string) {
	t.Helper()
	if err := os.Remove(filepath.Join(data, "log", ".kafka_cleanshutdown")); err != nil {
		t.Fatal(err)
	}
}
