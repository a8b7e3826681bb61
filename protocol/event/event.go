package event

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

// Event is one change of state. Name is short, lower case and stable
// ("segment_rolled"); it is what metrics count by.
type Event interface {
	Name() string
	Level() slog.Level
	Attrs() []slog.Attr
}

// Sink takes events. It must be safe for concurrent use.
type Sink func(Event)

// Emit hands e to the sink; a nil sink drops it.
func (s Sink) Emit(e Event) {
	if s != nil {
		s(e)
	}
}

// Log returns a sink that writes each event as one structured log line.
func Log(l *slog.Logger) Sink {
	return func(e Event) {
		ctx := context.Background()
		if l.Enabled(ctx, e.Level()) {
			l.LogAttrs(ctx, e.Level(), e.Name(), e.Attrs()...)
		}
	}
}

// Fan returns a sink that hands each event to all sinks in order.
func Fan(sinks ...Sink) Sink {
	sinks = slices.DeleteFunc(slices.Clone(sinks), func(s Sink) bool { return s == nil })
	return func(e Event) {
		for _, s := range sinks {
			s(e)
		}
	}
}

// Recorder keeps all events, for tests. The zero value is ready; its Emit
// method is a Sink.
type Recorder struct {
	mu      sync.Mutex
	events  []Event
	changed chan struct{} // closed and replaced when an event comes while someone waits
}

// Emit stores e.
func (r *Recorder) Emit(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// All returns the events so far, oldest first.
func (r *Recorder) All() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Count returns how many events of this name were stored.
func (r *Recorder) Count(name string) int {
	n := 0
	for _, e := range r.All() {
		if e.Name() == name {
			n++
		}
	}
	return n
}

// Wait returns the first event of this name, waiting for it until ctx ends.
func (r *Recorder) Wait(ctx context.Context, name string) (Event, error) {
	for {
		e, changed := r.find(name)
		if e != nil {
			return e, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *Recorder) find(name string) (Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Name() == name {
			return e, nil
		}
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return nil, r.changed
}
