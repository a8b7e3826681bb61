package commitlog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"varve/protocol"
	"varve/protocol/record"
)

// ForeignLogDir is the log directory of another broker, Apache Kafka's or ours, that is stopped. It is only read.
type ForeignLogDir struct {
	dir                     string
	ClusterID               string // as meta.properties says; "" when it does not
	logStarts, hwCheckpoint map[topicPartition]int64
	Partitions              []ForeignPartition // ordered by topic and partition; deleted and stray ones are left out
}

// ForeignPartition names one partition folder.
type ForeignPartition struct {
	Topic     string
	Partition int32
	TopicID   protocol.UUID // zero when the folder has no partition.metadata
}

// OpenForeign looks at a log directory. A broker that runs on it is a *LockedError where its lock can be seen; a *ForeignError
// is a directory without meta.properties, or with another version of it.
func OpenForeign(dir string) (*ForeignLogDir, error) {
	data, err := os.ReadFile(filepath.Join(dir, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ForeignError{File: filepath.Join(dir, metaFile), Field: "version", Has: "no such file", Want: "1"}
	}
	if err != nil {
		return nil, err
	}
	props, err := decodeProperties(data, metaFile)
	if err != nil {
		return nil, err
	}
	if err := lockedElsewhere(filepath.Join(dir, lockFile)); err != nil {
		return nil, &LockedError{Dir: dir, Err: err}
	}
	d := &ForeignLogDir{dir: dir, ClusterID: props.clusterID}
	if d.logStarts, err = foreignOffsets(filepath.Join(dir, logStartFile)); err != nil {
		return nil, err
	}
	if d.hwCheckpoint, err = foreignOffsets(filepath.Join(dir, highWatermarkFile)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		tp, ok := parseFolder(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		p := ForeignPartition{Topic: tp.topic, Partition: tp.partition}
		path := filepath.Join(dir, e.Name(), partitionFile)
		data, err := os.ReadFile(path)
		if err == nil {
			p.TopicID, err = decodePartition(data, path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		d.Partitions = append(d.Partitions, p)
	}
	slices.SortFunc(d.Partitions, func(a, b ForeignPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return d, nil
}

// lockedElsewhere tells whether a process holds the lock file, as Java's FileChannel.tryLock takes it. A directory without one
// was copied, or never used.
func lockedElsewhere(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return err
	}
	if l.Type != unix.F_UNLCK {
		return fmt.Errorf("process %d holds it", l.Pid)
	}
	return nil
}

// foreignOffsets reads an offset checkpoint; damage is an error here, since nobody will make it good.
func foreignOffsets(path string) (map[topicPartition]int64, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[topicPartition]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeOffsets(data, path)
}

// ForeignLog reads the segments of one partition folder in order. It is for one goroutine.
type ForeignLog struct {
	path     string
	nowMs    int64
	interval int32
	segs     []foreignSegment
	at       int // of segs
	ps       *producers
	epochs   []EpochStart

	LogStart int64 // first readable offset
	End      int64 // what is below is committed and whole, and no transaction below is open
	LeftOut  int64 // offsets behind End that the folder holds: not committed, or of open transactions
	Missing  int64 // offsets that the high-watermark checkpoint knows and the folder has not, or not whole
}

type foreignSegment struct {
	base, next int64 // the last one's next is where it ends
	sizeBytes  int64
}

// Log opens a partition's folder and finds out how far it can be taken. indexIntervalBytes is that of the indexes that
// Next makes.
//
// Errors: *protocol.CorruptionError; a *protocol.Error UnsupportedForMessageFormat for batches older than Kafka 0.11.
func (d *ForeignLogDir) Log(p ForeignPartition, indexIntervalBytes int32, nowMs int64) (*ForeignLog, error) {
	tp := topicPartition{p.Topic, p.Partition}
	f := &ForeignLog{path: filepath.Join(d.dir, tp.String()), nowMs: nowMs, interval: indexIntervalBytes, ps: newProducers()}
	if err := f.list(); err != nil || len(f.segs) == 0 {
		return f, err
	}
	first := f.segs[0].base
	f.LogStart = max(d.logStarts[tp], first)
	for len(f.segs) > 1 && f.segs[0].next <= f.LogStart {
		f.segs = f.segs[1:]
	}
	if err := f.readEpochs(); err != nil {
		return nil, err
	}
	stable, end, err := f.stableEnd()
	if err != nil {
		return nil, err
	}
	f.End = min(stable, end)
	if hw, ok := d.hwCheckpoint[tp]; ok {
		f.End = min(f.End, hw)
		f.Missing = max(0, hw-end)
	}
	f.LogStart = min(f.LogStart, end)
	f.End = max(f.End, f.LogStart)
	f.LeftOut = end - f.End
	f.ps, _, err = f.snapshotBelow(f.segs[0].base, true)
	return f, err
}

// list finds the segments. Files of a cleaning that a crash ended are for their own broker to sort out.
func (f *ForeignLog) list() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".swap" || ext == cleanedSuffix {
			return &protocol.CorruptionError{Where: filepath.Join(f.path, e.Name()),
				What: "it was left by a compaction that a crash ended: start its broker once and stop it in order"}
		}
		off, suffix, ok := parseFileName(e.Name())
		if !ok || suffix != logSuffix {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f.segs = append(f.segs, foreignSegment{base: off, next: math.MaxInt64, sizeBytes: info.Size()})
	}
	slices.SortFunc(f.segs, func(a, b foreignSegment) int { return cmp.Compare(a.base, b.base) })
	for i := range len(f.segs) - 1 {
		f.segs[i].next = f.segs[i+1].base
	}
	return nil
}

// readEpochs takes the leader epochs of the folder. Those of a log that has none, or whose first lies above its first segment,
// begin with that segment: each offset needs one.
func (f *ForeignLog) readEpochs() error {
	path := filepath.Join(f.path, epochFile)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if f.epochs, err = decodeEpochs(data, path); err != nil {
			return err
		}
	}
	if len(f.epochs) == 0 {
		f.epochs = []EpochStart{{Epoch: 0, Start: f.segs[0].base}}
	}
	f.epochs[0].Start = min(f.epochs[0].Start, f.segs[0].base)
	return nil
}

// snapshotBelow returns the producers of the newest snapshot at or below off, and its offset; exact: of one at off alone. Without
// one nobody is known.
func (f *ForeignLog) snapshotBelow(off int64, exact bool) (*producers, int64, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range slices.Backward(entries) { // names have fixed widths: the newest comes first
		at, suffix, ok := parseFileName(e.Name())
		if !ok || suffix != snapshotSuffix || at > off || exact && at != off {
			continue
		}
		data, err := os.ReadFile(filepath.Join(f.path, e.Name()))
		if err != nil {
			return nil, 0, err
		}
		if ps, err := decodeProducers(data, e.Name()); err == nil { // a damaged one is passed over, as at a start
			return ps, at, nil
		}
	}
	return newProducers(), -1, nil
}

// stableEnd returns the last stable offset and the end of the log, by the newest snapshot and the batches since.
func (f *ForeignLog) stableEnd() (stable, end int64, err error) {
	ps, from, err := f.snapshotBelow(math.MaxInt64, false)
	if err != nil {
		return 0, 0, err
	}
	from = max(from, f.segs[0].base)
	end = f.segs[0].base
	for i, s := range f.segs {
		if s.next <= from {
			end = s.next
			continue
		}
		end = max(end, s.base)
		err := f.walk(s, i == len(f.segs)-1, func(b record.Batch, _ int64) error {
			end = b.NextOffset()
			if b.BaseOffset() >= from && b.ProducerID() != record.NoProducerID {
				f.track(ps, nil, b)
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return min(ps.firstUnstable.Load(), end), end, nil
}

// track is Log.track for a log whose every batch is replicated.
func (f *ForeignLog) track(ps *producers, seg *segment, b record.Batch) {
	marker, err := readMarker(b)
	if err != nil {
		marker = endMarker{}
	}
	ended, ok := ps.apply(b, marker, f.nowMs)
	if !ok {
		return
	}
	stable := ps.settle(ended)
	if marker.abort && seg != nil {
		seg.noteAborted(AbortedTxn{ProducerID: ended.producerID, FirstOffset: ended.first, LastOffset: ended.last, LastStableOffset: stable})
	}
	ps.replicated(math.MaxInt64)
}

// walk calls fn with each whole batch of a segment whose checksum is right, and where it begins. What is torn at the end of
// the last segment is passed over, as a start would cut it; elsewhere it is an error.
func (f *ForeignLog) walk(s foreignSegment, last bool, fn func(b record.Batch, pos int64) error) error {
	return walkBatches(filepath.Join(f.path, fileName(s.base, logSuffix)), s, last, fn)
}

func walkBatches(path string, s foreignSegment, last bool, fn func(b record.Batch, pos int64) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	scan := batchScan{src: file, end: s.sizeBytes}
	next := s.base
	for {
		b, pos, err := scan.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		torn := errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && last && len(scan.rest) >= record.PeekLen && binary.BigEndian.Uint32(scan.rest[8:]) == 0 {
			return nil // room that was reserved and not used
		}
		if protocol.CodeOf(err) == protocol.UnsupportedForMessageFormat {
			return protocol.Errorf(protocol.UnsupportedForMessageFormat, "%s at byte %d: %v: it was written before Kafka 0.11; rewrite the topic on a broker that still can", path, pos, err)
		}
		var code *protocol.Error
		if err != nil && !torn && !errors.As(err, &code) {
			return err
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err == nil && (b.BaseOffset() < next || b.LastOffsetDelta() < 0 || b.LastOffset() >= s.next || !fitsRelative(s.base, b.LastOffset())) {
			err = fmt.Errorf("%s stands after offset %d in a segment up to %d", b, next-1, s.next)
		}
		if err != nil && last {
			return nil
		}
		if err != nil {
			return &protocol.CorruptionError{Where: fmt.Sprintf("%s at byte %d", path, pos), What: err.Error()}
		}
		if err := fn(b, pos); err != nil {
			return err
		}
		next = b.NextOffset()
	}
}

// errCut ends a walk at the last batch that may be taken.
var errCut = errors.New("cut")

// Next returns the next segment below End as a part of the tier, its indexes made anew from its batches; io.EOF after the last one.
// What it claims goes up to the next segment, whatever compaction left in it. Close must be called on it.
func (f *ForeignLog) Next() (*Export, error) {
	if f.at >= len(f.segs) || f.segs[f.at].base >= f.End {
		return nil, io.EOF
	}
	s := f.segs[f.at]
	last := f.at == len(f.segs)-1
	f.at++
	part := &segment{base: s.base, offsets: newIndex(nil, offsetEntryBytes), times: newIndex(nil, timeEntryBytes), txns: newIndex(nil, txnEntryBytes)}
	part.resetState()
	first := int64(record.NoTimestamp)
	err := f.walk(s, last, func(b record.Batch, pos int64) error {
		if b.NextOffset() > f.End {
			return errCut
		}
		if pos == 0 {
			first = b.BaseTimestamp()
		}
		part.note(b, pos, int64(b.Size()), f.interval)
		if b.ProducerID() != record.NoProducerID {
			f.track(f.ps, part, b)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errCut) {
		return nil, err
	}
	part.noteTime()
	return f.export(s, part, first)
}

func (f *ForeignLog) export(s foreignSegment, part *segment, firstTimestamp int64) (*Export, error) {
	e := &Export{Base: s.base, Next: min(s.next, f.End), FirstTimestamp: firstTimestamp, MaxTimestamp: part.maxTimestamp.Load(), ProducerSnapshot: f.ps.encode()}
	var err error
	if e.OffsetIndex, err = part.offsets.bytes(0, part.offsets.count()); err != nil {
		return nil, err
	}
	if e.TimeIndex, err = part.times.bytes(0, part.times.count()); err != nil {
		return nil, err
	}
	if e.TxnIndex, err = part.txns.bytes(0, part.txns.count()); err != nil {
		return nil, err
	}
	for _, entry := range f.epochs {
		if entry.Start < e.Next {
			e.Epochs = append(e.Epochs, entry)
		}
	}
	file, err := os.Open(filepath.Join(f.path, fileName(s.base, logSuffix)))
	if err != nil {
		return nil, err
	}
	e.Log = protocol.Span{File: file, Len: part.size(), Release: func() { _ = file.Close() }} // read only: nothing is lost with it
	return e, nil
}
