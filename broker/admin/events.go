package admin

import (
	"sync"

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
}

type eventKey struct{ name, level string }

type transfer struct{ requests, bytes uint64 }

// Emit counts e.
func (c *Events) Emit(e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName, c.uploaded = map[eventKey]uint64{}, map[string]transfer{}
	}
	key := eventKey{e.Name(), e.Level().String()}
	if _, ok := c.byName[key]; !ok && len(c.byName) >= maxEventNames {
		key = eventKey{"other", ""}
	}
	c.byName[key]++
	if up, ok := e.(tiering.SegmentUploaded); ok {
		t := c.uploaded[up.Topic]
		t.requests++
		t.bytes += uint64(up.Bytes)
		c.uploaded[up.Topic] = t
	}
}

// snapshot returns copies; topics that are not known any more are forgotten.
func (c *Events) snapshot(known func(topic string) bool) (map[eventKey]uint64, map[string]transfer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, uploads := map[eventKey]uint64{}, map[string]transfer{}
	for k, n := range c.byName {
		names[k] = n
	}
	for topic, t := range c.uploaded {
		if !known(topic) {
			delete(c.uploaded, topic)
			continue
		}
		uploads[topic] = t
	}
	return names, uploads
}
