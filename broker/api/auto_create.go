package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"varve/broker/group"
	"varve/metastore/controller"
	"varve/protocol"
)

const (
	maxPendingAutoCreates  = 1000 // topics; clients ask again for those beyond
	autoCreateTimeoutMs    = 30_000
	maxAutoCreatesPerBatch = 100
)

// autoCreator makes topics that were asked for and do not exist, in the
// background, each once at a time (AutoTopicCreationManager.scala). Its goroutine
// exists only while there is something to make.
type autoCreator struct {
	d      *Dispatcher
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	pending map[string]struct{} // being made or waiting for it
	running bool
	closed  bool
}

func (a *autoCreator) init(d *Dispatcher) {
	a.d = d
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.pending = map[string]struct{}{}
}

// want asks for topics with legal names.
func (a *autoCreator) want(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		if _, ok := a.pending[n]; !ok && len(a.pending) < maxPendingAutoCreates {
			a.pending[n] = struct{}{}
		}
	}
	if len(a.pending) > 0 && !a.running && !a.closed {
		a.running = true
		a.wg.Go(a.run)
	}
}

func (a *autoCreator) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.wg.Wait()
}

func (a *autoCreator) run() {
	for {
		batch := a.take()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(a.ctx, autoCreateTimeoutMs*time.Millisecond)
		results := a.d.o.Controller.CreateTopics(ctx, batch, false)
		cancel()
		for _, r := range results {
			if r.Err != nil && protocol.CodeOf(r.Err) != protocol.TopicAlreadyExists {
				a.d.o.Events.Emit(AutoCreateFailed{Topic: r.Name, Error: r.Err.Error()})
			}
		}
		a.forget(batch)
	}
}

// take returns the next topics to make; none means that run must end.
func (a *autoCreator) take() []controller.CreateTopic {
	a.mu.Lock()
	defer a.mu.Unlock()
	var batch []controller.CreateTopic
	for n := range a.pending {
		if len(batch) == maxAutoCreatesPerBatch {
			break
		}
		t := controller.CreateTopic{Name: n, Partitions: -1, ReplicationFactor: -1}
		if n == group.OffsetsTopic {
			t = a.d.o.Groups.Topic()
		}
		batch = append(batch, t)
	}
	a.running = len(batch) > 0 && !a.closed
	if !a.running {
		return nil
	}
	return batch
}

func (a *autoCreator) forget(batch []controller.CreateTopic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range batch {
		delete(a.pending, t.Name)
	}
}

// AutoCreateFailed says that a topic that a client asked for could not be made.
type AutoCreateFailed struct{ Topic, Error string }

// Name implements event.Event.
func (AutoCreateFailed) Name() string { return "topic_auto_create_failed" }

// Level implements event.Event.
func (AutoCreateFailed) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e AutoCreateFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Topic), slog.String("error", e.Error)}
}
