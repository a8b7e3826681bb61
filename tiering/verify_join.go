package tiering

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// maxLeftObjects bounds the objects of a partition that wait to be looked at by themselves.
const maxLeftObjects = 1000

// join goes over the objects of one spread folder, in the order in which LIST names them, and over the rows that name objects there,
// which is the same order: of both a page is in memory, however many there are.
type join struct {
	v       *verifier
	cluster string // whose folder a restore took over; "" is this cluster's own
	seen    map[partKey]bool

	key    partKey // the partition being compared
	opened bool
	start  metastore.TierState
	page   []metastore.RemoteSegment
	at     int64 // where the rows after the page begin
	last   bool  // there is no page after this one
	next   int64 // end of the row before, -1 at first
	left   []leftObject
}

// leftObject is an object that no readable row has named so far.
type leftObject struct {
	key  SegmentKey
	info objstore.ObjectInfo
}

// object takes the next object that LIST named.
func (j *join) object(ctx context.Context, o objstore.ObjectInfo) {
	v := j.v
	k, err := ParseSegmentKey(o.Key)
	if err != nil || k.Prefix != v.m.o.Prefix || k.ClusterID != cmp.Or(j.cluster, v.m.o.ClusterID) {
		if v.o.Topic == nil && j.cluster == "" {
			v.found(Finding{Kind: FoundStranger, Key: o.Key, Bytes: o.Size, What: "varve writes no such key"})
		}
		return
	}
	if v.o.Topic != nil && !v.o.Topic(k.TopicID) {
		return
	}
	if key := (partKey{k.TopicID, k.Partition}); !j.opened || j.key != key {
		j.close(ctx)
		j.open(key)
	}
	if j.cluster == "" {
		v.listed(o)
	}
	for {
		r := j.row()
		switch {
		case r == nil || r.Base > k.Base || r.Base == k.Base && r.ID != k.ID:
			if j.cluster == "" || v.m.released(k.TopicID) {
				j.leave(ctx, leftObject{k, o})
			}
			return
		case r.ID == k.ID:
			if j.cluster != "" {
				v.listed(o)
			}
			v.segment(ctx, *r, &o)
			j.page = j.page[1:]
			return
		}
		j.unlisted(ctx, *r)
	}
}

func (v *verifier) listed(o objstore.ObjectInfo) {
	v.count(func(r *VerifyReport) { r.Objects++; r.ObjectBytes += o.Size })
}

func (j *join) unlisted(ctx context.Context, r metastore.RemoteSegment) {
	j.v.segment(ctx, r, nil)
	j.page = j.page[1:]
}

// open begins with a partition.
func (j *join) open(key partKey) {
	*j = join{v: j.v, cluster: j.cluster, seen: j.seen, key: key, opened: true, next: -1, left: j.left[:0]}
	j.seen[key] = true
	var err error
	if j.start, err = j.v.m.o.Meta.Tier(key.topic, key.partition); err != nil {
		j.failed(err)
	}
	if j.cluster == "" {
		j.v.count(func(r *VerifyReport) { r.Partitions++ })
	}
}

// failed ends the rows of a partition. A topic that is gone has none.
func (j *join) failed(err error) {
	j.last, j.page = true, nil
	if protocol.CodeOf(err) != protocol.UnknownTopicID {
		j.v.unchecked(fmt.Errorf("rows of %s-%d: %w", j.key.topic, j.key.partition, err))
	}
}

// row is the first row not dealt with whose object lies in this folder, nil when there are no more.
func (j *join) row() *metastore.RemoteSegment {
	for {
		for len(j.page) > 0 {
			r := &j.page[0]
			if j.cluster == "" && j.next >= 0 && r.Base > max(j.next, j.start.LogStart) {
				j.v.gap(j.key, max(j.next, j.start.LogStart), r.Base)
			}
			j.next = r.Next
			if j.mine(r) {
				return r
			}
			j.page = j.page[1:]
		}
		if j.last {
			return nil
		}
		err := j.v.m.o.Meta.SegmentsFrom(j.key.topic, j.key.partition, j.at, func(r metastore.RemoteSegment) bool {
			j.page = append(j.page, r)
			return len(j.page) < maxVerifyPageRows
		})
		if j.last = len(j.page) < maxVerifyPageRows; err != nil {
			j.failed(err)
		} else if len(j.page) > 0 {
			j.at = j.page[len(j.page)-1].Next
		}
	}
}

// mine says whether a row is this folder's to look at. The own folder's pass has those, too, whose folder nobody goes over.
func (j *join) mine(r *metastore.RemoteSegment) bool {
	cluster := clusterIn(r.Location)
	return cluster == j.cluster || j.cluster == "" && !slices.Contains(j.v.claims, cluster)
}

// close ends with the partition: what rows are left was not listed.
func (j *join) close(ctx context.Context) {
	if !j.opened {
		return
	}
	for r := j.row(); r != nil && ctx.Err() == nil; r = j.row() {
		j.unlisted(ctx, *r)
	}
	j.look(ctx)
	j.opened = false
}

// leave keeps an object to be looked at by itself: it belongs to an attempt, or waits for its deletion, or is an orphan.
func (j *join) leave(ctx context.Context, o leftObject) {
	if j.left = append(j.left, o); len(j.left) >= maxLeftObjects {
		j.look(ctx)
	}
}

func (j *join) look(ctx context.Context) {
	for _, o := range j.left {
		if ctx.Err() != nil {
			break
		}
		switch pending, err := j.v.m.o.Meta.IsPending(o.key.TopicID, o.key.Partition, o.key.ID); {
		case err != nil:
			j.v.unchecked(err)
		case !pending:
			j.v.orphan(ctx, o.key, o.info)
		}
	}
	j.left = j.left[:0]
}

// released reports whether the topic is one of this cluster's whose retention does not wait. Of a folder that a restore took over,
// only what belongs to such topics is this cluster's to remove: others may still be restored from there.
func (m *Manager) released(topic protocol.UUID) bool {
	t, ok := m.o.Meta.Image().TopicByID(topic)
	return ok && !t.Held
}
