package admin

import (
	"sync"

	"varve/metastore"
	"varve/protocol/event"
	"varve/tiering"
)

// maxEventNames bounds the series of varve_events_total; a broker has some dozens.
const maxEventNames = 1000

// Events counts events for the metrics. Emit is an event.Sink. The zero value is ready.
type Events struct {
	mu       sync.Mutex
	byName   map[eventKey]uint64
	uploaded map[string]transfer // by topic
	merged   map[string]transfer
	state    metastore.StateSnapshotted // the last one
	bucket   tiering.SnapshotWritten
}

type eventKey struct{ name, level string }

type transfer struct{ requests, bytes, segments uint64 }

// Emit counts e.
func (c *Events) Emit(e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName, c.uploaded, c.merged = map[eventKey]uint64{}, map[string]transfer{}, map[string]transfer{}
	}
	key := eventKey{e.Name(), e.Level().String()}
	if _, ok := c.byName[key]; !ok && len(c.byName) >= maxEventNames {
		key = eventKey{"other", ""}
	}
	c.byName[key]++
	switch e := e.(type) {
	case tiering.SegmentUploaded:
		add(c.uploaded, e.Topic, e.Bytes, 1)
	case tiering.SegmentsMerged:
		add(c.merged, e.Topic, e.Bytes, e.Sources)
	case metastore.StateSnapshotted:
		c.state = e
	case tiering.SnapshotWritten:
		c.bucket = e
	}
}

// snapshots are the last ones on disk and in the bucket, zero when there was none since the start.
func (c *Events) snapshots() (metastore.StateSnapshotted, tiering.SnapshotWritten) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.bucket
}

func add(to map[string]transfer, topic string, bytes int64, segments int) {
	t := to[topic]
	to[topic] = transfer{t.requests + 1, t.bytes + uint64(bytes), t.segments + uint64(segments)}
}

// snapshot returns copies; topics that are not known any more are forgotten.
func (c *Events) snapshot(known func(topic string) bool) (names map[eventKey]uint64, uploads, merges map[string]transfer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names = map[eventKey]uint64{}
	for k, n := range c.byName {
		names[k] = n
	}
	return names, keep(c.uploaded, known), keep(c.merged, known)
}

func keep(from map[string]transfer, known func(topic string) bool) map[string]transfer {
	out := map[string]transfer{}
	for topic, t := range from {
		if !known(topic) {
			delete(from, topic)
			continue
		}
		out[topic] = t
	}
	return out
}
