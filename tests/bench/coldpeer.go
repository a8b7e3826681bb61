package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"varve/tests/kafka"
)

const (
	// peerBytesMax is the most that a tier in a folder holds: there are two of them, and both must fit the page cache.
	peerBytesMax = 2 << 30
	// peerFetchBytes is a generous max.partition.fetch.bytes; Apache Kafka's default is coldFetchBytes.
	peerFetchBytes = 8 << 20

	boundPeer = "One request at a time, on two cores that the reader shares: two fifths of varve's CPU is inside sendfile and the write before it, a fifth reads and checks what is sent next, the rest is turns of the two. " +
		"Apache Kafka begins to read a fetch's bytes when it is asked for them, and does not check them."
)

// peerSettings is what of Apache Kafka's settings helps it here: the kernel sizes the send buffer, which takes a third off the CPU of 8 MiB
// fetches. Of what else there is, remote.log.reader.threads is 10, more than readers here, and the longest wait for a remote read
// (remote.fetch.max.wait.ms) is never reached.
var peerSettings = []string{"socket.send.buffer.bytes=-1"}

// peerTier is a log in a folder and the broker whose tier that is.
type peerTier struct {
	coldLog
	b      *bench
	side   string
	data   string
	folder string // the tier's
	server *server
	filled bool // the log is in the tier
}

// peerReading is how the tier is read.
type peerReading struct {
	fetchBytes int
	readers    int
	disk       bool // the tier's files are not in the page cache
	kgo        bool // by a kgo client with its defaults, in place of the harness's
}

// coldPeerRows read the same log from a tier in a folder: varve's `dir` store, and the file-based store that Apache Kafka ships.
//
// Apache Kafka stays alive from round to round, once it is warm: it keeps no remote bytes, only indexes, so that a start in each
// round would cost it its compiled code and nothing else. varve keeps what it read, and starts afresh.
func coldPeerRows() []row {
	of := func(name, title, bound string, r peerReading) row {
		return row{name: "cold/dir-beside-kafka-" + name, title: title + "; the tier is a folder, of Apache Kafka its LocalTieredStorage", bound: bound,
			sides: r.sides(), figures: []string{"MB/s", cpuPerGB, peakRSS}, alone: true, start: r.lane}
	}
	return []row{
		of("1MiB", "one reader, one partition, fetches of 1 MiB", boundPeer, peerReading{fetchBytes: coldFetchBytes, readers: 1}).want("MB/s", kafkaSide, 3, true),
		of("8MiB", "one reader, one partition, fetches of 8 MiB", boundPeer, peerReading{fetchBytes: peerFetchBytes, readers: 1}).want("MB/s", kafkaSide, 3, true),
		of("8-readers", "8 readers, each of another place in one partition, fetches of 1 MiB", "The machine's two cores, half of which the readers take: what counts is the broker's CPU.",
			peerReading{fetchBytes: coldFetchBytes, readers: 8}),
		of("kgo", "franz-go, its defaults, one partition", boundClient, peerReading{kgo: true}),
		of("disk", "one reader, one partition, fetches of 1 MiB, nothing of the tier in the page cache", "The disk, which varve reads about as fast as it goes.",
			peerReading{fetchBytes: coldFetchBytes, readers: 1, disk: true}),
	}
}

// sides: where the page cache holds the files and the harness reads, a loop of sendfile shows what the machine and one request at a time allow.
func (r peerReading) sides() []string {
	if r.kgo || r.disk {
		return []string{varve, kafkaSide}
	}
	return []string{varve, kafkaSide, bare}
}

func (r peerReading) lane(ctx context.Context, b *bench, side string) (*lane, error) {
	if side == bare {
		return r.bareLane(ctx, b)
	}
	t, err := b.peerTier(ctx, side)
	if err != nil {
		return nil, err
	}
	if side == kafkaSide && !b.small {
		if err := untilWarm(side, func() (sample, error) { return t.read(ctx, r) }); err != nil {
			return nil, err
		}
	}
	return &lane{cold: true, close: t.stop, round: func(ctx context.Context) (sample, error) {
		if side != kafkaSide {
			defer t.stop()
		}
		if err := t.up(ctx); err != nil {
			return nil, err
		}
		if err := pageCache(t.folder, !r.disk); err != nil {
			return nil, err
		}
		return t.read(ctx, r)
	}}, nil
}

// bareLane sends the same ranges out of one of the objects that varve's tier has.
func (r peerReading) bareLane(ctx context.Context, b *bench) (*lane, error) {
	t, err := b.peerTier(ctx, varve)
	if err != nil {
		return nil, err
	}
	t.stop()
	object, size, err := t.largest()
	if err != nil {
		return nil, err
	}
	s, err := b.startBare(ctx, "sendfile", object)
	if err != nil {
		return nil, err
	}
	return &lane{cold: true, close: s.kill, round: func(context.Context) (sample, error) {
		if err := pageCache(t.folder, true); err != nil {
			return nil, err
		}
		return t.spread(s.pid, r.readers, func(from, to int) (int64, error) { return t.readBare(s.addr, size, from, to, r.fetchBytes) })
	}}, nil
}

// largest is the object that holds most.
func (t *peerTier) largest() (path string, size int64, err error) {
	err = filepath.WalkDir(t.folder, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > size {
			path, size = p, info.Size()
		}
		return err
	})
	return path, size, err
}

// peerTier is the side's log in a folder, produced and settled by whoever asks first.
func (b *bench) peerTier(ctx context.Context, side string) (*peerTier, error) {
	if t := b.peers[side]; t != nil {
		return t, t.up(ctx)
	}
	l, err := newColdLog(min(b.coldBytes, peerBytesMax))
	if err != nil {
		return nil, err
	}
	t := &peerTier{b: b, side: side, coldLog: l, data: filepath.Join(b.data, "peer-"+side), folder: filepath.Join(b.data, "peer-"+side+"-tier")}
	b.peers[side] = t // to be closed, whatever comes
	if err := os.MkdirAll(t.folder, 0o755); err != nil {
		return nil, err
	}
	if side == kafkaSide {
		if err := kafka.InstallTier(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.up(ctx); err != nil {
		return nil, err
	}
	err = t.fill(ctx, t.server, b.small)
	t.filled = err == nil
	return t, err
}

// up starts the broker, if it is not there.
func (t *peerTier) up(ctx context.Context) (err error) {
	if t.server != nil {
		return nil
	}
	sets := []string{"varve.topic.remote.storage.enable=true", "varve.tier.url=dir://" + t.folder, "varve.tier.scrub.interval.ms=-1"}
	if t.side == kafkaSide {
		sets = append(kafka.TierProps(t.folder), peerSettings...)
	}
	t.server, err = t.b.launch(ctx, t.side, t.data, append(sets, "remote.log.manager.task.interval.ms=500", "log.retention.check.interval.ms=1000")...)
	if err != nil || !t.filled {
		return err
	}
	if err := awaitServing(ctx, t.server.addr, map[string]int{coldTopic: 1}); err != nil {
		return err
	}
	return t.awaitTier(ctx)
}

// awaitTier returns once the last batch of the tier is served: Apache Kafka answers errors until it has read its metadata topic. What
// varve reads ahead for it is nothing, as it is the last.
func (t *peerTier) awaitTier(ctx context.Context) error {
	for until := time.Now().Add(servingWait); ; {
		_, err := t.readRange(t.server.addr, t.batches-1, t.batches, coldFetchBytes)
		if err == nil || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (t *peerTier) stop() {
	if t.server != nil {
		_ = t.server.terminate()
		t.server.kill()
		t.server = nil
	}
}

func (t *peerTier) read(ctx context.Context, r peerReading) (sample, error) {
	if !r.kgo {
		return t.readAll(t.server.addr, t.server.pid, r.readers, r.fetchBytes)
	}
	used, err := measure(t.server.pid, func() error {
		_, err := kgoConsume(ctx, t.server, coldTopic, t.batches*t.records)
		return err
	})
	if err != nil {
		return nil, err
	}
	return used.moved(1, int64(t.batches*t.records), t.bytes(1)), nil
}

// pageCache brings the files of a folder into the page cache, or out of it.
func pageCache(dir string, in bool) error {
	if err := settleDisk(dir); err != nil { // what is dirty would stay
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if in {
			_, err = io.Copy(io.Discard, f)
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}
