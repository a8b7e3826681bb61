package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"strconv"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering"
	"varve/tiering/tierpb"
)

// The lost cluster whose bucket the scale rows read: one topic, each segment 1 MiB of log in batches of 128 records, a record a
// millisecond. Everything of a segment follows from partition and number.
const (
	scaleTopic        = "history"
	scaleBatches      = 8
	scaleBatchRecs    = 128
	scaleRecords      = scaleBatches * scaleBatchRecs // in a segment
	scaleValueBytes   = 1010
	scaleFirstOffset  = 1 << 36             // retention has been there; and so all numbers take as many bytes
	scaleSegmentBytes = 1 << 20             // of the topic's config: no segment counts as small, and none is merged
	scaleFirstMs      = 1_600_000_000_000   // 2020-09-13
	scaleJournaled    = 50                  // every so many segments one is in the journal only
	scaleRowsRecord   = 1000                // rows in a record of the snapshot
	scaleEntries      = 1000                // in a journal object
	scaleIndex        = uint64(50_000_000)  // raft index of the snapshot
	segmentMs         = int64(scaleRecords) // of log time in a segment
)

// history is the lost cluster.
type history struct {
	cluster  string
	topic    protocol.UUID
	parts    int
	per      int // segments in each partition
	batch    []byte
	log      []byte // of segment 0, to be copied
	rows     []metastore.RemoteSegment
	snapshot tiering.SnapshotSize
}

func newHistory(parts, per int) (*history, error) {
	h := &history{cluster: protocol.UUID{0xaa, 1}.String(), topic: protocol.UUID{0xbb, 2}, parts: parts, per: per}
	b := record.NewBuilder(record.Options{Codec: record.None})
	value := bytes.Repeat([]byte("varve "), scaleValueBytes/6+1)[:scaleValueBytes]
	for i := range scaleBatchRecs {
		if err := b.Add(scaleFirstMs+int64(i), nil, value); err != nil {
			return nil, err
		}
	}
	batch, err := b.Batch()
	if err != nil {
		return nil, err
	}
	h.batch = batch
	h.log = bytes.Repeat(h.batch, scaleBatches)
	for p := range parts {
		enc, err := h.encode(int32(p), 0)
		if err != nil {
			return nil, err
		}
		h.rows = append(h.rows, metastore.RemoteSegment{
			TopicID: h.topic, Partition: int32(p), ObjectBytes: enc.Size, LogBytes: enc.IndexOff, IndexOff: enc.IndexOff, IndexLen: int32(enc.IndexLen()),
			State: metastore.SegFinished, StartTimeMs: scaleFirstMs, StateTimeMs: scaleFirstMs, DeadlineMs: scaleFirstMs,
		})
	}
	return h, nil
}

func (h *history) base(i int) int64 { return scaleFirstOffset + int64(i)*scaleRecords }

func (h *history) end() int64 { return h.base(h.per) }

// id of a segment.
func (h *history) id(p int32, i int) (id protocol.UUID) {
	binary.BigEndian.PutUint32(id[:], uint32(p)*2654435761+1)
	binary.BigEndian.PutUint64(id[8:], (uint64(i)+1)*0x9e3779b97f4a7c15)
	return id
}

// row of a segment, as a metastore has it.
func (h *history) row(p int32, i int) metastore.RemoteSegment {
	r := h.rows[p]
	r.ID, r.Base, r.Next = h.id(p, i), h.base(i), h.base(i+1)
	r.FirstTimestamp = scaleFirstMs + int64(i)*segmentMs
	r.MaxTimestamp = r.FirstTimestamp + segmentMs - 1
	return r
}

func (h *history) folder(p int32) string {
	return path.Dir(h.key(p, 0)) + "/"
}

func (h *history) key(p int32, i int) string {
	at := scaleFirstMs + int64(i+1)*segmentMs - 1
	return tiering.SegmentKey{ClusterID: h.cluster, TopicID: h.topic, Partition: p, Base: h.base(i), Next: h.base(i + 1), MaxTimestamp: at, ID: h.id(p, i)}.String()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode makes the object of a segment, by the encoder that brokers use.
func (h *history) encode(p int32, i int) (*tiering.EncodedSegment, error) {
	first := scaleFirstMs + int64(i)*segmentMs
	log := slices.Clone(h.log)
	var offsets, times []byte
	be := binary.BigEndian
	for n := range scaleBatches {
		b := log[n*len(h.batch) : (n+1)*len(h.batch)]
		at, last := int64(n*scaleBatchRecs), int64((n+1)*scaleBatchRecs-1)
		be.PutUint64(b, uint64(h.base(i)+at))
		be.PutUint64(b[27:], uint64(first+at))   // base timestamp
		be.PutUint64(b[35:], uint64(first+last)) // max timestamp
		be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
		if n > 0 {
			offsets = be.AppendUint32(be.AppendUint32(offsets, uint32(last)), uint32(n*len(h.batch)))
		}
		times = be.AppendUint32(be.AppendUint64(times, uint64(first+last)), uint32(last))
	}
	none := []byte{0, 0, 0, 0} // no producers
	producers := append(be.AppendUint32([]byte{0, 1}, crc32.Checksum(none, castagnoli)), none...)
	id := h.id(p, i)
	return tiering.EncodeSegment(tiering.SegmentSource{
		Log: bytes.NewReader(log), LogBytes: int64(len(log)), OffsetIndex: offsets, TimeIndex: times, ProducerSnapshot: producers,
		Footer: &tierpb.Footer{
			ClusterId: h.cluster, Topic: scaleTopic, TopicId: h.topic[:], Partition: p, SegmentId: id[:], Base: h.base(i), Next: h.base(i + 1),
			LogStart: scaleFirstOffset, FirstTimestamp: first, MaxTimestamp: first + segmentMs - 1, MaxProducerId: -1,
			Writer: &tierpb.Writer{BrokerId: 1, WrittenMs: first + segmentMs},
		},
	})
}

// write puts what the cluster had in its bucket beside the segments: owner, snapshot, and a journal with the newest of each partition.
func (h *history) write(put func(key string, b []byte)) error {
	owner, err := json.Marshal(map[string]any{"version": 1, "cluster_id": h.cluster, "epoch": 1, "delete_deadline_ms": 1})
	if err != nil {
		return err
	}
	put(h.cluster+"/owner", owner)
	h.snapshot, err = tiering.WriteSnapshot("", h.cluster, time.Now().Add(-time.Minute).UnixMilli(), h.state,
		func(key string, _ bool, b []byte) error { put(key, b); return nil })
	if err != nil {
		return err
	}
	return h.journal(put)
}

// journaled is how many of a partition's segments are in the journal alone.
func (h *history) journaled() int { return max(1, h.per/scaleJournaled) }

func (h *history) state(add func(*metapb.SnapshotRecord) error) error {
	epochs := make([]int32, h.parts)
	for _, r := range []*metapb.SnapshotRecord{
		{Body: &metapb.SnapshotRecord_Cluster{Cluster: &metapb.SnapshotCluster{ClusterId: h.cluster, Index: scaleIndex, NextProducerId: 1000}}},
		{Body: &metapb.SnapshotRecord_Locations{Locations: &metapb.SnapshotLocations{Locations: []string{"s3://lost"}}}},
		{Body: &metapb.SnapshotRecord_Topic{Topic: &metapb.SnapshotTopic{TopicId: h.topic[:], Name: scaleTopic, LeaderEpochs: epochs, Replication: 1,
			Configs: map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "segment.bytes": strconv.Itoa(scaleSegmentBytes)}}}},
	} {
		if err := add(r); err != nil {
			return err
		}
	}
	n := h.per - h.journaled()
	for p := range int32(h.parts) {
		state := metastore.TierState{LogStart: scaleFirstOffset, End: h.base(n), Epochs: []metastore.EpochStart{{}}, Count: int64(n), Bytes: int64(n) * h.rows[p].LogBytes}
		if err := add(&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Partition{Partition: &metapb.SnapshotPartition{TopicId: h.topic[:], Partition: p, Tier: state.Row()}}}); err != nil {
			return err
		}
		for from := 0; from < n; from += scaleRowsRecord {
			var rows []byte
			for i := from; i < min(n, from+scaleRowsRecord); i++ {
				r := h.row(p, i)
				rows = metastore.PackSegments(rows, &r, func(string) uint32 { return 0 })
			}
			s := &metapb.SnapshotSegments{TopicId: h.topic[:], Partition: p, Rows: rows}
			if err := add(&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Segments{Segments: s}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *history) journal(put func(key string, b []byte)) error {
	var entries []*metapb.JournalEntry
	index, prev := scaleIndex, scaleIndex
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		b, err := tiering.EncodeJournal(prev, entries)
		if err != nil {
			return err
		}
		put(fmt.Sprintf("%s/meta/journal/%020d", h.cluster, entries[0].Index), b)
		prev, entries = index, nil
		return nil
	}
	for i := h.per - h.journaled(); i < h.per; i++ {
		for p := range int32(h.parts) {
			r := h.row(p, i)
			r.Location, r.Epochs = "s3://lost", []metastore.EpochStart{{}}
			index++
			entries = append(entries, &metapb.JournalEntry{Index: index, TimeMs: time.Now().UnixMilli(), Records: []*metapb.JournalRecord{
				{Body: &metapb.JournalRecord_Finished{Finished: metastore.SegmentToProto(&r)}}}})
			if len(entries) == scaleEntries {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// folders are the partitions in the order of their keys.
func (h *history) folders() (out []int32) {
	for p := range int32(h.parts) {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b int32) int { return cmp.Compare(h.folder(a), h.folder(b)) })
	return out
}
