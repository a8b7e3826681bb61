package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// startEmpty is the time from exec to the first answer to Metadata, on an empty folder. Apache Kafka's is formatted
// beforehand, which is not counted.
func startEmpty(ctx context.Context, b *bench, side string) (sample, error) {
	s, drop, err := b.fresh(ctx, side, "start")
	if err != nil {
		return nil, err
	}
	took := time.Since(s.began)
	defer drop()
	cpu, err := cpuOf(s.pid)
	rss, _, rerr := residentOf(s.pid)
	return sample{"start ms": took.Seconds() * 1000, "CPU ms": cpu.Seconds() * 1000, "RSS MB": float64(rss) / 1e6}, errors.Join(err, rerr)
}

// stored is a broker that is not running and its folder, with one topic of 16 partitions.
type stored struct {
	side, data string
	topics     map[string]int
	checkpoint []byte // Kafka's recovery-point-offset-checkpoint as it stood when the broker ended
}

// checkpointFile holds up to where each log is known to be on disk; both brokers write Kafka's format.
func (d *stored) checkpointFile() string {
	return filepath.Join(d.data, "log", "recovery-point-offset-checkpoint")
}

// store fills a broker's log and ends it, in order or with SIGKILL.
func (b *bench) store(ctx context.Context, side, name string, bytes int64, end func(*server) error) (*stored, error) {
	d := &stored{side: side, data: filepath.Join(b.data, name+"-"+side), topics: map[string]int{"kept": 16}}
	s, err := b.launch(ctx, side, d.data)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	if err := awaitServing(ctx, s.addr, nil); err != nil {
		return nil, err
	}
	if err := createTopic(ctx, s, "kept", 16, nil); err != nil {
		return nil, err
	}
	batch, err := newBatch(shape1K)
	if err != nil {
		return nil, err
	}
	c, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	frames := produceFrames("kept", load{partitions: 16, acks: -1}, batch)
	if _, err := replay(c, frames, int(bytes)/len(batch), checkProduced); err != nil {
		return nil, err
	}
	if err := end(s); err != nil {
		return nil, err
	}
	if d.checkpoint, err = os.ReadFile(d.checkpointFile()); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return d, err
}

// restart starts the broker and returns once it serves every partition.
func (b *bench) restart(ctx context.Context, d *stored) (*server, sample, error) {
	s, err := b.launch(ctx, d.side, d.data)
	if err != nil {
		return nil, nil, err
	}
	if err := awaitServing(ctx, s.addr, d.topics); err != nil {
		s.kill()
		return nil, nil, err
	}
	took := time.Since(s.began)
	cpu, err := cpuOf(s.pid)
	_, peak, rerr := residentOf(s.pid)
	return s, sample{"start ms": took.Seconds() * 1000, "recovery s": took.Seconds(), "CPU ms": cpu.Seconds() * 1000, "CPU s": cpu.Seconds(),
		"RSS MB": float64(peak) / 1e6, peakRSS: float64(peak) / 1e6}, errors.Join(err, rerr)
}

func startDataRow() row {
	return row{name: "start/with-data", title: "start to serving after an orderly end, with -bytes in 16 partitions", sides: []string{varve, kafkaSide},
		bound: "Reading the directory and the checkpoints; the metastore's election.", figures: []string{"start ms", "CPU ms", "RSS MB"},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			d, err := b.store(ctx, side, "start-data", b.bytes, func(s *server) error { return s.terminate() })
			if err != nil {
				return nil, err
			}
			return &lane{close: func() { _ = os.RemoveAll(d.data) }, round: func(ctx context.Context) (sample, error) {
				s, out, err := b.restart(ctx, d)
				if err != nil {
					return nil, err
				}
				return out, s.terminate()
			}}, nil
		}}
}

// recoverRow kills a broker with -recover-bytes that were never flushed by it, and times how long it takes to serve them all.
// Every round begins from the checkpoint as the kill left it, and with the log in the page cache as far as it fits.
func recoverRow() row {
	return row{name: "recover", title: "kill -9 with -recover-bytes in 16 partitions, start to serving all of them", sides: []string{varve, kafkaSide},
		bound:   "Reading and checking the log from the recovery point: memory and CRC, or the disk where the page cache is too small.",
		figures: []string{"recovery s", "CPU s", peakRSS},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			d, err := b.store(ctx, side, "recover", b.recoverBytes, func(s *server) error { s.kill(); return nil })
			if err != nil {
				return nil, err
			}
			return &lane{cold: true, close: func() { _ = os.RemoveAll(d.data) }, round: func(ctx context.Context) (sample, error) {
				if err := d.rewind(); err != nil {
					return nil, err
				}
				s, out, err := b.restart(ctx, d)
				if err == nil {
					s.kill()
				}
				return out, err
			}}, nil
		}}
}

// rewind puts the checkpoint back and reads the log once, so that what the other side did to the page cache does not count.
func (d *stored) rewind() error {
	if d.checkpoint == nil {
		if err := os.Remove(d.checkpointFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	} else if err := os.WriteFile(d.checkpointFile(), d.checkpoint, 0o644); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(d.data, "log", "*", "*.log"))
	if err != nil || len(logs) == 0 {
		return fmt.Errorf("no log in %s: %w", d.data, err)
	}
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return settleDisk(d.data)
}
