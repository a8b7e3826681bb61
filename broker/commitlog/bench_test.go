package commitlog

import (
	"context"
	"testing"

	"varve/protocol"
	"varve/protocol/record"
)

func benchLog(b *testing.B, cfg Config) *Log {
	m, err := OpenManager(ManagerOptions{Dir: b.TempDir(), NodeID: 1})
	must(b, err)
	b.Cleanup(func() { must(b, m.Close(context.Background(), -1)) })
	l, err := m.Create("bench", protocol.UUID{1}, 0, cfg)
	must(b, err)
	return l
}

func benchBatch(b *testing.B, records, valueBytes int) record.Batch {
	bl := record.NewBuilder(record.Options{})
	value := make([]byte, valueBytes)
	for range records {
		must(b, bl.Add(1_700_000_000_000, nil, value))
	}
	batch, err := bl.Batch()
	must(b, err)
	return batch
}

// BenchmarkAppend: what one append costs, and that it allocates nothing.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name         string
		records, val int
	}{{"1x100", 1, 100}, {"100x100", 100, 100}, {"16x1024", 16, 1024}, {"1000x1000", 1000, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := DefaultConfig()
			cfg.MaxMessageBytes = 1 << 30
			cfg.TimestampAfterMaxMs = 1 << 60
			l := benchLog(b, cfg)
			batch := benchBatch(b, c.records, c.val)
			b.SetBytes(int64(batch.Size()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.AppendAsLeader(batch, 1, OriginClient); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead finds a 1 MiB slice somewhere in a log of 16 KiB batches.
func BenchmarkRead(b *testing.B) {
	l := benchLog(b, DefaultConfig())
	batch := benchBatch(b, 16, 1024)
	for range 4096 {
		if _, err := l.AppendAsLeader(batch, 1, OriginClient); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	off := int64(0)
	for b.Loop() {
		s, err := l.Read(off, 1<<20, l.End(), true)
		if err != nil || s.Len == 0 {
			b.Fatal(s.Len, err)
		}
		s.Release()
		if off = s.NextOffset; off == l.End() {
			off = 0
		}
	}
}
