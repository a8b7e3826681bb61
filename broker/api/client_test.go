package api

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/broker/netio"
	"varve/broker/replica"
	"varve/metastore"
	"varve/metastore/controller"
	"varve/protocol/record"
)

// The real ones fit.
var (
	_ Replicas      = (*replica.Manager)(nil)
	_ Controller    = (*controller.Controller)(nil)
	_ Cluster       = (*metastore.Image)(nil)
	_ netio.Handler = (*Dispatcher)(nil)
)

// memoryLog keeps what is appended to a-0 and serves it.
type memoryLog struct {
	mu      sync.Mutex
	batches []record.Batch
	next    int64
}

func (m *memoryLog) append(req *replica.AppendRequest) (out []replica.AppendResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range req.Partitions {
		b := record.Batch(bytes.Clone(p.Records))
		b.SetBaseOffset(m.next)
		m.batches = append(m.batches, b)
		out = append(out, replica.AppendResult{BaseOffset: m.next, LogAppendTime: -1, Leader: -1})
		m.next = b.NextOffset()
	}
	return out
}

func (m *memoryLog) fetch(b *bench) func(context.Context, *replica.FetchRequest) []replica.FetchResult {
	return func(ctx context.Context, req *replica.FetchRequest) []replica.FetchResult {
		out := make([]replica.FetchResult, len(req.Partitions))
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, p := range req.Partitions {
			out[i] = replica.FetchResult{HighWatermark: m.next, LastStable: m.next, Leader: -1, PreferredReplica: -1}
			for _, batch := range m.batches {
				if batch.NextOffset() > p.Offset {
					out[i].Spans = append(out[i].Spans, b.replicas.span(batch))
				}
			}
		}
		return out
	}
}

// listen serves a Dispatcher on a real port.
func (b *bench) listen() (addr string) {
	b.t.Helper()
	s, err := netio.New(netio.Options{Handler: b, Events: b.events.Emit})
	if err != nil {
		b.t.Fatal(err)
	}
	at, err := s.Listen(b.t.Context(), "PLAINTEXT", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve() })
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			b.t.Error(err)
		}
		wg.Wait()
	})
	host := at.String()
	var port int32
	if _, err := fmt.Sscanf(host, "127.0.0.1:%d", &port); err != nil {
		b.t.Fatal(err)
	}
	b.cluster.brokers = []*metastore.Broker{{ID: 1, Endpoints: []metastore.Endpoint{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: port}}}}
	b.cluster.controller = 1
	return host
}

// A client that was never told about us writes with idempotence, reads back and
// asks for what an administrator asks for.
func TestRealClient(t *testing.T) {
	b := newBench(t)
	log := &memoryLog{}
	b.replicas.append, b.replicas.fetch = log.append, log.fetch(b)
	b.replicas.listOffset = func(context.Context, replica.OffsetQuery) (replica.OffsetResult, error) {
		return replica.OffsetResult{Timestamp: -1, Offset: 0, LeaderEpoch: 7}, nil
	}
	b.cluster.topics["a"].Partitions = b.cluster.topics["a"].Partitions[:1]
	addr := b.listen()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("a"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 50 {
		r := &kgo.Record{Topic: "a", Key: fmt.Append(nil, "k", i), Value: bytes.Repeat([]byte("v"), i), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil || r.Offset != int64(i) {
			t.Fatal(i, err, r.Offset)
		}
	}
	for got := 0; got < 50; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != int64(got) || string(r.Key) != fmt.Sprint("k", got) || len(r.Value) != got {
				t.Errorf("record %d: %+v", got, r)
			}
			got++
		})
	}
	adm := kadm.NewClient(cl)
	if made, err := adm.CreateTopic(ctx, 3, 1, nil, "new"); err != nil || made.Err != nil || made.NumPartitions != 3 {
		t.Fatal(made, err)
	}
	if cfg, err := adm.DescribeTopicConfigs(ctx, "a"); err != nil || len(cfg[0].Configs) < 20 {
		t.Fatal(cfg, err)
	}
	if meta, err := adm.BrokerMetadata(ctx); err != nil || meta.Controller != 1 || meta.Cluster != "cluster-id" {
		t.Fatal(meta, err)
	}
	if gone, err := adm.DeleteTopics(ctx, "a"); err != nil || gone["a"].Err != nil {
		t.Fatal(gone, err)
	}
}
