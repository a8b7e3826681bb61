package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// quietTime is given to a broker to finish what starting, connecting or creating set off.
	quietTime = 3 * time.Second
	// trickleRequests a second go to one partition after the other.
	trickleRequests = 500
	// topicPartitions is how many partitions of many are in one topic.
	topicPartitions = 1000
)

// fresh starts a broker of its own on an empty folder, with further settings; drop ends it and removes the folder.
func (b *bench) fresh(ctx context.Context, side, name string, sets ...string) (s *server, drop func(), err error) {
	data := filepath.Join(b.data, name+"-"+side)
	if err := os.RemoveAll(data); err != nil {
		return nil, nil, err
	}
	s, err = b.launch(ctx, side, data, sets...)
	if err != nil {
		return nil, nil, err
	}
	drop = func() {
		s.kill()
		_ = os.RemoveAll(data)
	}
	if err := awaitServing(ctx, s.addr, nil); err != nil {
		drop()
		return nil, nil, err
	}
	return s, drop, nil
}

// coldRow is a row whose rounds each start a broker of their own.
func coldRow(name, title, bound string, rounds int, figures []string, round func(ctx context.Context, b *bench, side string) (sample, error), sides ...string) row {
	return row{name: name, title: title, bound: bound, sides: sides, figures: figures, rounds: rounds,
		start: func(_ context.Context, b *bench, side string) (*lane, error) {
			return &lane{cold: true, round: func(ctx context.Context) (sample, error) { return round(ctx, b, side) }}, nil
		}}
}

// pause waits, or ends with the context.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// watch is the share of a core that a process uses while nothing, or do, happens to it.
func watch(pid int, do func() error) (percent, switchesPerS float64, err error) {
	used, err := measure(pid, do)
	if err != nil {
		return 0, 0, err
	}
	return 100 * used.cpu.Seconds() / used.wall.Seconds(), float64(used.switches) / used.wall.Seconds(), nil
}

func idleNode(ctx context.Context, b *bench, side string) (sample, error) {
	s, drop, err := b.fresh(ctx, side, "idle")
	if err != nil {
		return nil, err
	}
	defer drop()
	if err := pause(ctx, quietTime); err != nil {
		return nil, err
	}
	cpu, switches, err := watch(s.pid, func() error { return pause(ctx, b.idle) })
	if err != nil {
		return nil, err
	}
	rss, _, err := residentOf(s.pid)
	return sample{"idle CPU %": cpu, "idle switches/s": switches, "RSS MB": float64(rss) / 1e6}, err
}

// idleConnections opens connections that say what client they are, ask for the metadata and then nothing more.
func idleConnections(ctx context.Context, b *bench, side string) (sample, error) {
	s, drop, err := b.fresh(ctx, side, "connections")
	if err != nil {
		return nil, err
	}
	defer drop()
	if err := pause(ctx, quietTime); err != nil {
		return nil, err
	}
	before, _, err := residentOf(s.pid)
	if err != nil {
		return nil, err
	}
	for i := range b.connections {
		c, err := dial(s.addr)
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
		defer c.Close()
		if err := c.introduce(); err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
	}
	if err := pause(ctx, quietTime); err != nil {
		return nil, err
	}
	cpu, _, err := watch(s.pid, func() error { return pause(ctx, b.idle) })
	if err != nil {
		return nil, err
	}
	rss, _, err := residentOf(s.pid)
	return sample{"RSS MB": float64(rss) / 1e6, "added MB": float64(rss-before) / 1e6, "KB a connection": float64(rss-before) / 1e3 / float64(b.connections),
		"idle CPU %": cpu}, err
}

func (c *conn) introduce() error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	v := kmsg.NewPtrApiVersionsRequest()
	v.Version, v.ClientSoftwareName, v.ClientSoftwareVersion = 3, "bench", "1"
	m := kmsg.NewPtrMetadataRequest()
	m.Version, m.Topics = 12, []kmsg.MetadataRequestTopic{}
	for _, r := range []kmsg.Request{v, m} {
		if _, err := c.call(r); err != nil {
			return err
		}
	}
	return nil
}

// idlePartitions makes many partitions, watches the broker do nothing with them, and then take a small record for one of
// them every two milliseconds.
func idlePartitions(partitions int) func(ctx context.Context, b *bench, side string) (sample, error) {
	return func(ctx context.Context, b *bench, side string) (sample, error) {
		n := partitions
		if b.small {
			n = min(n, 50)
		}
		s, drop, err := b.fresh(ctx, side, "partitions")
		if err != nil {
			return nil, err
		}
		defer drop()
		bareFDs, err := descriptorsOf(s.pid)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		per := min(n, topicPartitions)
		var topics []string
		for range n / per {
			topic, err := b.newTopic(ctx, s, per, nil)
			if err != nil {
				return nil, err
			}
			topics = append(topics, topic)
		}
		out := sample{"create s": time.Since(began).Seconds()}
		if err := errors.Join(settleDisk(b.data), pause(ctx, quietTime)); err != nil {
			return nil, err
		}
		idle, switches, err := watch(s.pid, func() error { return pause(ctx, b.idle) })
		if err != nil {
			return nil, err
		}
		fds, err := descriptorsOf(s.pid)
		if err != nil {
			return nil, err
		}
		out["idle CPU %"], out["idle switches/s"], out["descriptors/partition"] = idle, switches, float64(fds-bareFDs)/float64(n)
		return out, b.trickle(ctx, s, topics, per, out)
	}
}

// trickle adds to a sample what small records for all partitions in turn cost.
func (b *bench) trickle(ctx context.Context, s *server, topics []string, per int, out sample) error {
	batch, err := newBatch(shape{records: 1, bytes: 100})
	if err != nil {
		return err
	}
	c, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	cpu, _, err := watch(s.pid, func() error {
		began := time.Now()
		for i := 0; time.Since(began) < b.idle; i++ {
			topic := topics[i%len(topics)]
			if _, err := replay(c, [][]byte{produceFrame(topic, -1, batch, int32(i/len(topics)%per))}, 1, checkProduced); err != nil {
				return err
			}
			if err := pause(ctx, time.Until(began.Add(time.Duration(i+1)*time.Second/trickleRequests))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fds, err := descriptorsOf(s.pid)
	if err != nil {
		return err
	}
	rss, _, err := residentOf(s.pid)
	out["trickle CPU %"], out["descriptors, trickling"], out["RSS MB"] = cpu, float64(fds), float64(rss)/1e6
	return err
}
