package metastore

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"varve/protocol"
)

// Delta is what changed between two images. The first one that a subscriber gets has an empty Old and names everything.
type Delta struct {
	Old, New      *Image
	Topics        []TopicChange // removed ones first, then by name
	Brokers       []int32       // ids of registrations that came, changed or went
	BrokerConfigs []string      // decimal node ids, "" for the default of all brokers
}

// TopicChange is one topic that came (Old nil), went (New nil) or changed. A topic that was deleted and made again under the same
// name is two changes. Unchanged partitions are the same pointers in Old and New.
type TopicChange struct {
	Old, New *Topic
}

// changes collects what a run of commands touched.
type changes struct {
	topics  map[protocol.UUID]struct{}
	brokers map[int32]struct{}
	configs map[string]struct{}
}

func newChanges() *changes {
	return &changes{topics: map[protocol.UUID]struct{}{}, brokers: map[int32]struct{}{}, configs: map[string]struct{}{}}
}

func (c *changes) add(o *changes) {
	for k := range o.topics {
		c.topics[k] = struct{}{}
	}
	for k := range o.brokers {
		c.brokers[k] = struct{}{}
	}
	for k := range o.configs {
		c.configs[k] = struct{}{}
	}
}

// everything names all that is in either image.
func everything(old, img *Image) *changes {
	c := newChanges()
	for _, i := range []*Image{old, img} {
		for t := range i.Topics() {
			c.topics[t.ID] = struct{}{}
		}
		for _, b := range i.Brokers() {
			c.brokers[b.ID] = struct{}{}
		}
		for it := i.configs.Iterator(); !it.Done(); {
			name, _, _ := it.Next()
			c.configs[name] = struct{}{}
		}
	}
	return c
}

func (c *changes) delta(old, img *Image) Delta {
	d := Delta{Old: old, New: img}
	for id := range c.topics {
		was, _ := old.TopicByID(id)
		is, _ := img.TopicByID(id)
		if was != is {
			d.Topics = append(d.Topics, TopicChange{Old: was, New: is})
		}
	}
	slices.SortFunc(d.Topics, func(a, b TopicChange) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Name(), b.Name()))
	})
	for id := range c.brokers {
		d.Brokers = append(d.Brokers, id)
	}
	slices.Sort(d.Brokers)
	for name := range c.configs {
		d.BrokerConfigs = append(d.BrokerConfigs, name)
	}
	slices.Sort(d.BrokerConfigs)
	return d
}

func (t TopicChange) rank() int {
	if t.New == nil {
		return 0
	}
	return 1
}

// Name is the topic's name.
func (t TopicChange) Name() string {
	if t.New != nil {
		return t.New.Name
	}
	return t.Old.Name
}

// subscriber owns one goroutine that calls fn. What it has not taken yet is merged, so a slow one costs memory for the ids that
// changed meanwhile and no more.
type subscriber struct {
	fn      func(Delta)
	wake    chan struct{} // capacity 1
	stop    chan struct{}
	mu      sync.Mutex
	pending *changes
	next    *Image
}

func (s *subscriber) offer(img *Image, c *changes) {
	s.mu.Lock()
	if s.pending == nil {
		s.pending = newChanges()
	}
	s.pending.add(c)
	s.next = img
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) run() {
	old := newImage()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		c, img := s.pending, s.next
		s.pending, s.next = nil, nil
		s.mu.Unlock()
		if img == nil {
			continue
		}
		s.fn(c.delta(old, img))
		old = img
	}
}

// hub publishes images and feeds subscribers.
type hub struct {
	img    atomic.Pointer[Image]
	mu     sync.Mutex
	subs   map[*subscriber]struct{}
	wg     sync.WaitGroup
	closed bool
}

func newHub() *hub {
	h := &hub{subs: map[*subscriber]struct{}{}}
	h.img.Store(newImage())
	return h
}

// publish makes img the current image. The controller is local knowledge, kept from image to image.
func (h *hub) publish(img *Image, c *changes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	img.controller = h.img.Load().controller
	h.set(img, c)
}

func (h *hub) setController(id int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.img.Load()
	if old.controller == id {
		return
	}
	img := *old
	img.controller = id
	h.set(&img, newChanges())
}

func (h *hub) set(img *Image, c *changes) {
	h.img.Store(img)
	for s := range h.subs {
		s.offer(img, c)
	}
}

func (h *hub) subscribe(fn func(Delta)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}
	}
	s := &subscriber{fn: fn, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	h.subs[s] = struct{}{}
	img := h.img.Load()
	s.offer(img, everything(newImage(), img))
	h.wg.Go(s.run)
	return sync.OnceFunc(func() {
		h.mu.Lock()
		_, live := h.subs[s]
		delete(h.subs, s)
		h.mu.Unlock()
		if live {
			close(s.stop)
		}
	})
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.subs {
		close(s.stop)
		delete(h.subs, s)
	}
	h.mu.Unlock()
	h.wg.Wait()
}
