package tiering

import (
	"context"
	"errors"
	"fmt"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// fpScrubDelete is the failpoint before orphans go. It is in no upload's life, so it stands apart from the list in failpoint.go.
const fpScrubDelete = "scrub-delete"

func isMissing(err error) bool { return errors.Is(err, objstore.ErrNotFound) }

// isCorrupt: the object is there and is not what its row and its own checksums say.
func isCorrupt(err error) bool {
	var bad *protocol.CorruptionError
	var format *FormatError
	return errors.As(err, &bad) || errors.As(err, &format)
}

// content checks footer, indexes and, if asked for, the log of one object. What looks corrupt is read a second time:
// bytes can also turn on their way.
func (v *verifier) content(ctx context.Context, r metastore.RemoteSegment) error {
	err := v.contentOnce(ctx, r)
	if isCorrupt(err) && ctx.Err() == nil {
		err = v.contentOnce(ctx, r)
	}
	return err
}

func (v *verifier) contentOnce(ctx context.Context, r metastore.RemoteSegment) error {
	key := v.m.rowKey(r)
	if r.IndexLen < trailerBytes || r.IndexLen > maxIndexBytes || r.IndexOff+int64(r.IndexLen) != r.ObjectBytes {
		return corrupt(key, "row says that the index has %d bytes at %d of %d", r.IndexLen, r.IndexOff, r.ObjectBytes)
	}
	b, err := v.get(ctx, key, r.IndexOff, int64(r.IndexLen))
	if err != nil {
		return err
	}
	x, err := parseIndex(key, b, r.IndexOff)
	if err != nil {
		return err
	}
	f := x.Footer
	if protocol.UUID(f.SegmentId) != r.ID || protocol.UUID(f.TopicId) != r.TopicID || f.Partition != r.Partition || f.Base != r.Base || f.Next != r.Next || f.LogBytes != r.LogBytes {
		return corrupt(key, "its footer is of segment %s, partition %s-%d, offsets [%d, %d)", protocol.UUID(f.SegmentId), protocol.UUID(f.TopicId), f.Partition, f.Base, f.Next)
	}
	if v.o.Level < VerifyData {
		return nil
	}
	return v.log(ctx, key, x)
}

// log reads the whole log, one extent at a time.
func (v *verifier) log(ctx context.Context, key string, x *SegmentIndex) error {
	scan := newBatchScan(x.Footer.Base, x.Footer.Next)
	for at := 0; at < len(x.Chunks); at += extentChunks {
		chunks := x.Chunks[at:min(at+extentChunks, len(x.Chunks))]
		last := chunks[len(chunks)-1]
		b, err := v.get(ctx, key, chunks[0].Stored, last.Stored+int64(last.Length)-chunks[0].Stored)
		if err != nil {
			return err
		}
		for _, c := range chunks {
			if err := c.check(key, b[c.Stored-chunks[0].Stored:][:c.Length]); err != nil {
				return err
			}
		}
		if err := scan.feed(b); err != nil {
			return err
		}
	}
	if err := scan.finish(); err != nil {
		return err
	}
	if scan.batches != x.Footer.BatchCount || scan.records != x.Footer.RecordCount {
		return corrupt(key, "%d batches and %d records, its footer says %d and %d", scan.batches, scan.records, x.Footer.BatchCount, x.Footer.RecordCount)
	}
	return nil
}

// get reads a range at the rate that was asked for. A body that ends early is the store's failure: the object's size was
// right.
func (v *verifier) get(ctx context.Context, key string, off, length int64) ([]byte, error) {
	for left := length; v.limit != nil && left > 0; left -= int64(v.limit.Burst()) {
		if err := v.limit.WaitN(ctx, int(min(left, int64(v.limit.Burst())))); err != nil {
			return nil, err
		}
	}
	b, err := v.m.getRange(ctx, key, off, length, "scrub")
	v.read.Add(int64(len(b)))
	return b, err
}

// orphan judges an object that had no row a moment ago. Its row may have come to be FINISHED, or both may be gone by now.
func (v *verifier) orphan(ctx context.Context, k SegmentKey, o objstore.ObjectInfo) {
	if row, ok, err := v.m.o.Meta.SegmentAt(k.TopicID, k.Partition, k.Base); err != nil || ok && row.ID == k.ID {
		return
	}
	if v.away() {
		v.unchecked(errAway)
		return
	}
	now, err := v.m.o.Store.Head(ctx, o.Key)
	if isMissing(err) {
		return
	}
	if err != nil {
		v.unchecked(err)
		return
	}
	if pending, err := v.m.o.Meta.IsPending(k.TopicID, k.Partition, k.ID); err != nil || pending {
		return
	}
	f := Finding{Kind: FoundOrphan, TopicID: k.TopicID, Partition: k.Partition, Base: k.Base, Next: k.Next, Key: o.Key, Bytes: now.Size,
		What: "no row names it"}
	if !v.o.Repair {
		v.found(f)
		return
	}
	if f.Repair = v.keepOrphan(k, now); f.Repair != "" {
		v.found(f)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.orphans = append(v.orphans, f)
}

// keepOrphan says why an orphan must stay, "" when it may go. One that holds offsets which the tier lacks is never removed:
// it may be all that is left of them.
func (v *verifier) keepOrphan(k SegmentKey, o objstore.ObjectInfo) string {
	m := v.m
	age := m.o.Now().UnixMilli() - o.ModTime.UnixMilli()
	if safe := max(m.o.DeleteDelayMs, 2*m.o.UploadDeadlineMs) + orphanGraceMs; o.ModTime.IsZero() || age < safe {
		return fmt.Sprintf("left: it is %d s old, orphans go after %d s", age/1000, safe/1000)
	}
	st, err := m.o.Meta.Tier(k.TopicID, k.Partition)
	if protocol.CodeOf(err) == protocol.UnknownTopicID && k.ClusterID == m.o.ClusterID {
		return "" // its topic is deleted
	}
	if err != nil {
		return "left: " + err.Error()
	}
	for at := max(k.Base, st.LogStart); at < k.Next; {
		row, ok, err := m.o.Meta.SegmentAt(k.TopicID, k.Partition, at)
		if err != nil || !ok {
			return fmt.Sprintf("left: the tier has no other segment with offset %d", at)
		}
		at = row.Next
	}
	return ""
}

// removeOrphans deletes what may go, as collect does: while the clocks agree and the owner object names this cluster.
func (v *verifier) removeOrphans(ctx context.Context) {
	m := v.m
	for len(v.orphans) > 0 {
		batch := v.orphans[:min(len(v.orphans), maxDeletePage)]
		v.orphans = v.orphans[len(batch):]
		left, err := m.deleteOrphans(ctx, batch)
		for _, f := range batch {
			f.Repair, f.Repaired = "deleted", true
			why := left[f.Key]
			if err != nil {
				why = err
			}
			if why != nil {
				f.Repair, f.Repaired = "left: "+why.Error(), false
			}
			v.found(f)
		}
	}
}

// deleteOrphans deletes those that lie in folders that are this cluster's, and says why the others are left.
func (m *Manager) deleteOrphans(ctx context.Context, batch []Finding) (left map[string]error, err error) {
	if err := m.readClock(); err != nil {
		return nil, err
	}
	if err := m.mayDelete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.deleteWithin())
	defer cancel()
	if err := m.checkOwner(ctx); err != nil {
		return nil, err
	}
	left = map[string]error{}
	keys := make([]string, 0, len(batch))
	claim := m.claims(ctx)
	for _, f := range batch {
		k, err := ParseSegmentKey(f.Key)
		if err == nil {
			err = claim(k.ClusterID)
		}
		if err != nil {
			left[f.Key] = err
			continue
		}
		keys = append(keys, f.Key)
	}
	if err := m.fail(fpScrubDelete); err != nil {
		return nil, err
	}
	rest, err := m.o.Store.Delete(ctx, keys)
	for _, e := range rest {
		left[e.Key] = e.Err
	}
	return left, err
}
