package commitlog

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"varve/protocol/record"
)

// Where KRaft keeps snapshots of its log: <end offset, 20 digits>-<epoch, 10 digits>.checkpoint, in the log's folder (Snapshots.java).
const (
	kraftSnapshotSuffix = ".checkpoint"
	kraftSnapshotName   = 20 + 1 + 10
)

// Batches calls fn with the batches of a partition that is read for what it says: those of its newest KRaft snapshot if it has
// one, then those of its segments from the snapshot's end on, up to the high watermark where that is known. A batch is valid
// during the call only. end is the offset up to which that is all.
//
// Errors: *protocol.CorruptionError; a *protocol.Error UnsupportedForMessageFormat; fn's.
func (d *ForeignLogDir) Batches(p ForeignPartition, fn func(record.Batch) error) (end int64, err error) {
	tp := topicPartition{p.Topic, p.Partition}
	f := &ForeignLog{path: filepath.Join(d.dir, tp.String())}
	if err := f.list(); err != nil {
		return 0, err
	}
	from, err := f.kraftSnapshot(fn)
	if err != nil {
		return 0, err
	}
	committed, known := d.hwCheckpoint[tp]
	if !known {
		committed = math.MaxInt64
	}
	end = from
	for i, s := range f.segs {
		if s.next <= from || s.base >= committed {
			continue
		}
		err := f.walk(s, i == len(f.segs)-1, func(b record.Batch, _ int64) error {
			if b.BaseOffset() < from || b.NextOffset() > committed {
				return nil
			}
			end = b.NextOffset()
			return fn(b)
		})
		if err != nil {
			return end, err
		}
	}
	return end, nil
}

// kraftSnapshot reads the newest snapshot in the folder and returns the offset up to which it says all; 0 without one.
func (f *ForeignLog) kraftSnapshot(fn func(record.Batch) error) (end int64, err error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return 0, err
	}
	for _, e := range slices.Backward(entries) { // names have fixed widths: the newest comes first
		name := e.Name()
		if len(name) != kraftSnapshotName+len(kraftSnapshotSuffix) || filepath.Ext(name) != kraftSnapshotSuffix {
			continue
		}
		end, err := strconv.ParseInt(name[:20], 10, 64)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		whole := foreignSegment{next: math.MaxInt64, sizeBytes: info.Size()}
		return end, walkBatches(filepath.Join(f.path, name), whole, false, func(b record.Batch, _ int64) error { return fn(b) })
	}
	return 0, nil
}
