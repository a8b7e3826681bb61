package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const churnName = "churn"

// TestTopicsComeAndGo makes a topic, writes to it and deletes it while it is uploaded and read, over and over under the same
// name, with crashes at any point. No life shows records of another, and nothing stays behind, on disk or in the bucket.
func TestTopicsComeAndGo(t *testing.T) {
	for _, store := range []string{"dir", "s3"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, store == "s3")
			ctx, stop := context.WithCancel(w.ctx)
			var reader sync.WaitGroup
			var seen error
			reader.Go(func() {
				for ctx.Err() == nil && seen == nil {
					seen = w.strangerPass(ctx)
				}
			})
			var last *topic
			for life := range *rounds {
				clear := w.storm()
				if last = w.live(uint32(life)); life < *rounds-1 {
					w.remove(last)
				}
				clear()
				if err := w.alarms.take(); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			reader.Wait()
			if seen != nil {
				t.Fatal(seen)
			}
			if err := w.whole(last); err != nil {
				t.Fatal(err)
			}
			w.settled()
			w.remove(last)
			w.settled()
			w.eventually(20*time.Second, w.foldersLeft)
		})
	}
}

// live makes the topic, writes to it, perhaps with a crash in between, and sometimes reads all of it.
func (w *world) live(life uint32) *topic {
	w.t.Helper()
	t := newTopic(churnName, 2, map[string]string{"flush.messages": []string{"1", "100000"}[w.rng.IntN(2)]})
	for _, l := range t.parts {
		l.life = life
	}
	if err := w.create(t); err != nil {
		w.t.Fatalf("create: %v", err)
	}
	tr := &traffic{w: w, topics: []*topic{t}, c: w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))}
	tr.stop = func() {}
	defer tr.close()
	if _, _, err := tr.c.ProducerID(w.ctx); err != nil {
		w.t.Fatal(err) // the client does not ask twice when the node dies under this one
	}
	var crash sync.WaitGroup
	if w.rng.IntN(2) == 0 {
		crash.Go(w.killer(400))
	}
	for range 500 + w.rng.IntN(1500) {
		tr.send(w.ctx, t.name, t.parts[w.rng.IntN(len(t.parts))])
	}
	crash.Wait()
	w.awake()
	err := tr.pause()
	tr.resume()
	if err == nil && w.rng.IntN(3) == 0 {
		err = w.whole(t)
	}
	if err != nil {
		w.t.Fatalf("life %d: %v", life, err)
	}
	return t
}

// killer kills the node that runs now at some moment.
func (w *world) killer(maxMs int) func() {
	n, after := w.node, time.Duration(w.rng.IntN(maxMs))*time.Millisecond
	return func() {
		time.Sleep(after)
		n.Kill()
	}
}

// awake starts the node again if something has killed it.
func (w *world) awake() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
	defer cancel()
	if _, err := w.node.Exit(ctx); err == nil {
		w.start()
	}
}

// remove deletes the topic, sometimes with a crash at that moment.
func (w *world) remove(t *topic) {
	w.t.Helper()
	var crash sync.WaitGroup
	if w.rng.IntN(2) == 0 {
		crash.Go(w.killer(30))
	}
	done := make(chan error, 1)
	var asking sync.WaitGroup
	asking.Go(func() { done <- w.drop(t.name) })
	crash.Wait()
	w.awake()
	asking.Wait()
	if err := <-done; err != nil {
		w.t.Fatalf("delete: %v", err)
	}
}

func (w *world) drop(name string) error {
	return w.insist(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(w.ctx, name)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil // the reply to the first try was lost
		}
		return err
	})
}

// strangerPass reads whatever the name stands for, for a while. Errors of the client are not looked at: topics come and go.
func (w *world) strangerPass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c := w.client(kgo.ConsumeTopics(churnName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMaxAge(200*time.Millisecond))
	defer c.Close()
	lives := map[int32]uint32{}
	for ctx.Err() == nil {
		for it := c.PollFetches(ctx).RecordIter(); !it.Done(); {
			r := it.Next()
			seq, life, err := parse(r.Partition, r.Value)
			if err == nil && (seq != r.Offset || life < lives[r.Partition]) {
				err = fmt.Errorf("record %d of life %d, after one of life %d", seq, life, lives[r.Partition])
			}
			if err != nil {
				return fmt.Errorf("%s-%d at offset %d: %w", churnName, r.Partition, r.Offset, err)
			}
			lives[r.Partition] = life
		}
	}
	return nil
}

// foldersLeft names partition folders of deleted topics, "" if there are none.
func (w *world) foldersLeft() string {
	left, err := filepath.Glob(filepath.Join(w.options.Data, "log", churnName+"-*"))
	if err == nil && w.server == nil {
		var temp []string
		err = filepath.WalkDir(strings.TrimPrefix(w.tierURL, "dir://"), func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() && strings.Contains(path, ".seg") {
				temp = append(temp, path)
			}
			return err
		})
		left = append(left, temp...)
	}
	if err != nil {
		return err.Error()
	}
	return strings.Join(left, " ")
}
