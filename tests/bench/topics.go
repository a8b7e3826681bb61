package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// goneWait bounds how long the folders of a deleted topic may stay.
const goneWait = 60 * time.Second

func admin(s *server) (*kadm.Client, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(c), nil
}

// createTopic returns when the topic takes records. The configs may be nil.
func createTopic(ctx context.Context, s *server, topic string, partitions int, configs map[string]*string) error {
	c, err := admin(s)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, int32(partitions), 1, configs, topic); err != nil {
		return err
	}
	return awaitServing(ctx, s.addr, map[string]int{topic: partitions})
}

// dropTopic deletes a topic and waits until its files are gone; "" is no topic.
func dropTopic(ctx context.Context, s *server, topic string) error {
	if topic == "" {
		return nil
	}
	c, err := admin(s)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	for until := time.Now().Add(goneWait); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(s.logs, topic+"-*"))
		if err != nil || len(left) == 0 {
			return err
		}
	}
	return fmt.Errorf("the folders of %s are still there after %v", topic, goneWait)
}

// newTopic makes a topic under a name that was never used.
func (b *bench) newTopic(ctx context.Context, s *server, partitions int, configs map[string]*string) (string, error) {
	b.topics++
	name := fmt.Sprintf("t%05d", b.topics)
	return name, createTopic(ctx, s, name, partitions, configs)
}
