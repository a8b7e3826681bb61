package tiering

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
	"varve/tiering/tierpb"
)

// Import writes partitions of stopped brokers into a folder of the bucket that looks like that of a cluster which is
// lost: objects, and a journal that names them. A restore then brings them in. Nothing is produced again, offsets and
// batches stay as they are.
//
// Ids are made from the folder's name and from what is imported, so an import that was cut off goes on where it
// stopped, and several brokers' directories may be imported into one folder, one after the other or at once; a partition that
// is in the journal is passed over. Not safe for concurrent use.
type Import struct {
	Store   objstore.Store
	Prefix  string            // folder of the store, as in the tier's URL
	ID      string            // stands where a cluster's id does; 1 to 64 letters, digits, '-' and '_'
	Configs map[string]string // of topics that TopicConfigs does not name
	// TopicConfigs are all configs of the topics that it names.
	TopicConfigs map[string]map[string]string
	Uploads      int              // at once; 4
	Lossy        bool             // take partitions too of which committed records are missing
	Now          func() time.Time // time.Now

	through uint64 // index of the last journal entry
	topics  map[protocol.UUID]int32
	done    map[partKey]bool
	offsets map[importedOffset]int64 // when they were committed, ms
}

// importedOffset names an offset of a group.
type importedOffset struct {
	group, topic string
	partition    int32
}

func offsetName(o *metapb.GroupOffset) importedOffset {
	return importedOffset{o.Group, o.Topic, o.Partition}
}

// ImportedPartition tells of one partition.
type ImportedPartition struct {
	Topic           string
	TopicID         protocol.UUID
	Partition       int32
	Segments        int
	Bytes           int64 // of log
	Records         int64
	LogStart, End   int64
	LeftOut         int64 // offsets behind End that were not committed, or in open transactions
	Missing         int64 // committed offsets that the folder has no more; 0 unless Lossy
	Already         bool  // it is in the journal: nothing was done
	UploadedObjects int64 // those that were not there yet
}

const (
	defaultImportUploads = 4
	maxImportAppends     = 100  // attempts to append to the journal beside other importers
	importEntrySegments  = 1000 // named by one journal entry
	maxImportIDBytes     = 64
	importIndexInterval  = 4096 // bytes between two entries of an index, Kafka's default
)

// Open claims the folder and reads what is there already.
//
// Errors: *OwnerError when a cluster has restored from the folder; *protocol.CorruptionError, *FormatError; those of the store.
func (im *Import) Open(ctx context.Context) error {
	if len(im.ID) == 0 || len(im.ID) > maxImportIDBytes || bytes.ContainsFunc([]byte(im.ID), notIDChar) {
		return fmt.Errorf("import id %q: take 1 to %d letters, digits, - and _", im.ID, maxImportIDBytes)
	}
	if im.Now == nil {
		im.Now = time.Now
	}
	if im.Uploads <= 0 {
		im.Uploads = defaultImportUploads
	}
	im.through, im.topics, im.done, im.offsets = 0, map[protocol.UUID]int32{}, map[partKey]bool{}, map[importedOffset]int64{}
	// Nobody deletes in this folder, so whoever takes it over need not wait for deletes to end.
	b, err := ownerObject{Version: ownerVersion, ClusterID: im.ID, Epoch: 1, DeleteDeadlineMs: 1}.encode()
	if err != nil {
		return err
	}
	key := ownerKey(im.Prefix, im.ID)
	_, err = im.Store.Put(ctx, key, objstore.BytesBody(b), objstore.PutOptions{IfNoneMatch: true, Cause: "owner"})
	if err != nil && !errors.Is(err, objstore.ErrPrecondition) {
		return err
	}
	o, err := readOwner(ctx, im.Store, key)
	if err != nil {
		return err
	}
	if o.ClusterID != im.ID || o.Epoch != 1 {
		return &OwnerError{Key: key, Have: o.ClusterID, HaveEpoch: o.Epoch, Want: im.ID}
	}
	return im.readJournal(ctx)
}

func notIDChar(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}

// readJournal takes in the objects that are news.
func (im *Import) readJournal(ctx context.Context) error {
	var keys []string
	err := im.Store.List(ctx, journalPrefix(im.Prefix, im.ID), journalKey(im.Prefix, im.ID, im.through), func(o objstore.ObjectInfo) bool {
		keys = append(keys, o.Key)
		return true
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		var o JournalObject
		err := getChecked(ctx, im.Store, key, maxJournalObjectBytes, "import", func(b []byte) (err error) {
			o, err = DecodeJournal(b)
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range o.Entries {
			im.through = max(im.through, e.Index)
			for _, r := range e.Records {
				im.take(r)
			}
		}
	}
	return nil
}

// take notes what a journal record says is there. A partition's last record is its log start.
func (im *Import) take(r *metapb.JournalRecord) {
	switch b := r.Body.(type) {
	case *metapb.JournalRecord_TopicCreated:
		im.topics[protocol.UUID(b.TopicCreated.TopicId)] = b.TopicCreated.Partitions
	case *metapb.JournalRecord_PartitionsCreated:
		im.topics[protocol.UUID(b.PartitionsCreated.TopicId)] = b.PartitionsCreated.Partitions
	case *metapb.JournalRecord_LogStart:
		im.done[partKey{protocol.UUID(b.LogStart.TopicId), b.LogStart.Partition}] = true
	case *metapb.JournalRecord_GroupOffsets:
		for _, o := range b.GroupOffsets.Offsets {
			im.offsets[offsetName(o)] = o.CommitMs
		}
	}
}

// derived makes an id out of words: the same words, the same id.
func derived(words ...any) protocol.UUID {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Append(nil, append(words, n)...))
		id := protocol.UUID(sum[:16])
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, as Kafka's
		if id.String()[0] != '-' {
			return id
		}
	}
}

// TopicID is the id that a topic gets.
func (im *Import) TopicID(topic string) protocol.UUID {
	return derived("varve import", im.ID, "topic", topic)
}

// Partition imports one partition of a directory as a partition of the topic with this name. Errors: those of
// commitlog.ForeignLog, of the store, ctx's.
func (im *Import) Partition(ctx context.Context, dir *commitlog.ForeignLogDir, p commitlog.ForeignPartition, topic string) (ImportedPartition, error) {
	out := ImportedPartition{Topic: topic, TopicID: im.TopicID(topic), Partition: p.Partition}
	key := partKey{out.TopicID, p.Partition}
	if im.done[key] {
		out.Already = true
		return out, nil
	}
	log, err := dir.Log(p, importIndexInterval, im.Now().UnixMilli())
	if err != nil {
		return out, err
	}
	out.LogStart, out.End, out.LeftOut, out.Missing = log.LogStart, log.End, log.LeftOut, log.Missing
	if log.Missing > 0 && !im.Lossy {
		return out, &protocol.CorruptionError{Where: fmt.Sprintf("%s-%d", p.Topic, p.Partition),
			What: fmt.Sprintf("the last %d committed offsets are missing or damaged: import it from another replica, or with --accept-loss", log.Missing)}
	}
	rows, maxProducer, err := im.upload(ctx, log, &out)
	if err != nil {
		return out, err
	}
	return out, im.announce(ctx, &out, rows, maxProducer)
}

// upload stores all segments, some at a time, and returns their rows in order.
func (im *Import) upload(ctx context.Context, log *commitlog.ForeignLog, out *ImportedPartition) (rows []*metastore.RemoteSegment, maxProducer int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(im.Uploads)
	var uploaded atomic.Int64
	var footers []*tierpb.Footer
	for err == nil && ctx.Err() == nil {
		var exp *commitlog.Export
		if exp, err = log.Next(); err != nil {
			break
		}
		var enc *EncodedSegment
		var row *metastore.RemoteSegment
		if enc, row, err = im.encode(exp, out); err != nil {
			exp.Close()
			break
		}
		rows, footers = append(rows, row), append(footers, enc.Footer)
		g.Go(func() error {
			defer exp.Close()
			fresh, err := im.put(ctx, enc, segmentKeyIn(im.Prefix, im.ID, row))
			if fresh {
				uploaded.Add(1)
			}
			return err
		})
	}
	if gerr := g.Wait(); gerr != nil || err == nil {
		err = gerr
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	maxProducer = -1
	for i, f := range footers {
		out.Segments, out.Records, out.Bytes = out.Segments+1, out.Records+f.RecordCount, out.Bytes+rows[i].LogBytes
		maxProducer = max(maxProducer, f.MaxProducerId)
	}
	out.UploadedObjects = uploaded.Load()
	return rows, maxProducer, nil
}

func (im *Import) encode(exp *commitlog.Export, out *ImportedPartition) (*EncodedSegment, *metastore.RemoteSegment, error) {
	now := im.Now().UnixMilli()
	epoch := exp.Epochs[len(exp.Epochs)-1].Epoch
	id := derived("varve import", im.ID, "segment", out.Topic, out.Partition, exp.Base, exp.Next, exp.Log.Len)
	enc, err := EncodeSegment(SegmentSource{
		Log: spanReader(exp.Log), LogBytes: exp.Log.Len, OffsetIndex: exp.OffsetIndex, TimeIndex: exp.TimeIndex,
		TxnIndex: exp.TxnIndex, ProducerSnapshot: exp.ProducerSnapshot, Epochs: exp.Epochs,
		Footer: &tierpb.Footer{
			ClusterId: im.ID, Topic: out.Topic, TopicId: out.TopicID[:], Partition: out.Partition, SegmentId: id[:],
			Base: exp.Base, Next: exp.Next, LogStart: out.LogStart, FirstTimestamp: exp.FirstTimestamp, MaxTimestamp: exp.MaxTimestamp,
			LeaderEpoch: epoch, Configs: sortedConfigs(im.configsOf(out.Topic)), Writer: &tierpb.Writer{BrokerId: -1, WrittenMs: now},
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return enc, &metastore.RemoteSegment{
		ID: id, TopicID: out.TopicID, Partition: out.Partition, Base: exp.Base, Next: exp.Next,
		FirstTimestamp: exp.FirstTimestamp, MaxTimestamp: exp.MaxTimestamp, LeaderEpoch: epoch, Broker: -1,
		ObjectBytes: enc.Size, LogBytes: enc.IndexOff, IndexOff: enc.IndexOff, IndexLen: int32(enc.IndexLen()),
		HasTxns: len(exp.TxnIndex) > 0, StartTimeMs: now, Epochs: lineage(exp.Epochs, exp.Base, exp.Next),
	}, nil
}

// put stores an object unless it is there: an object is whole or not there at all.
func (im *Import) put(ctx context.Context, enc *EncodedSegment, key string) (fresh bool, err error) {
	info, err := im.Store.Head(ctx, key)
	if err == nil && info.Size == enc.Size {
		return false, nil
	}
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return false, err
	}
	_, err = im.Store.Put(ctx, key, objstore.Body{ReaderAt: enc, Size: enc.Size}, objstore.PutOptions{CRC32C: &enc.CRC32C, Cause: "import"})
	return err == nil, err
}

// announce appends to the journal what a cluster's would say of the partition.
func (im *Import) announce(ctx context.Context, out *ImportedPartition, rows []*metastore.RemoteSegment, maxProducer int64) error {
	var entries []*metapb.JournalEntry
	for len(rows) > 0 {
		n := min(importEntrySegments, len(rows))
		e := &metapb.JournalEntry{}
		for _, r := range rows[:n] {
			e.Records = append(e.Records, &metapb.JournalRecord{Body: &metapb.JournalRecord_Finished{Finished: metastore.SegmentToProto(r)}})
		}
		entries, rows = append(entries, e), rows[n:]
	}
	end := &metapb.JournalEntry{}
	if maxProducer >= 0 {
		end.Records = append(end.Records, &metapb.JournalRecord{Body: &metapb.JournalRecord_ProducerIds{ProducerIds: &metapb.ProducerIds{Next: maxProducer + 1}}})
	}
	end.Records = append(end.Records, &metapb.JournalRecord{Body: &metapb.JournalRecord_LogStart{LogStart: &metapb.LogStartMoved{
		TopicId: out.TopicID[:], Partition: out.Partition, LogStart: out.LogStart,
	}}})
	entries = append(entries, end)
	return im.append(ctx, func() []*metapb.JournalEntry {
		if im.done[partKey{out.TopicID, out.Partition}] {
			return nil // by an attempt whose reply was lost
		}
		if r := im.topicRecord(out); r != nil {
			return append([]*metapb.JournalEntry{{Records: []*metapb.JournalRecord{r}}}, entries...)
		}
		return entries
	})
}

// Offsets adds offsets of groups, which a restore clamps to what the partitions hold. Those that are in the journal as young, or
// younger, are passed over; added counts the others. Errors: those of the store, ctx's.
func (im *Import) Offsets(ctx context.Context, offsets []*metapb.GroupOffset) (added int, err error) {
	news := func(all []*metapb.GroupOffset) (out []*metapb.GroupOffset) {
		for _, o := range all {
			if at, ok := im.offsets[offsetName(o)]; !ok || at < o.CommitMs {
				out = append(out, o)
			}
		}
		return out
	}
	for left := news(offsets); len(left) > 0; {
		n := fitOffsets(left)
		err := im.append(ctx, func() []*metapb.JournalEntry {
			some := news(left[:n])
			if len(some) == 0 {
				return nil
			}
			g := &metapb.GroupOffsets{AsOfMs: im.Now().UnixMilli(), Offsets: some}
			return []*metapb.JournalEntry{{Records: []*metapb.JournalRecord{{Body: &metapb.JournalRecord_GroupOffsets{GroupOffsets: g}}}}}
		})
		if err != nil {
			return added, err
		}
		added, left = added+n, left[n:]
	}
	return added, nil
}

// lastOffsets keeps the last of each.
func lastOffsets(all []*metapb.GroupOffset) (out []*metapb.GroupOffset) {
	at := make(map[importedOffset]int, len(all))
	for _, o := range all {
		if i, ok := at[offsetName(o)]; ok {
			out[i] = o
			continue
		}
		at[offsetName(o)] = len(out)
		out = append(out, o)
	}
	return out
}

// append writes one journal object behind the last one; another importer's, found in its place, is taken in first. missing returns
// what the journal, as far as it is known, still lacks: nil ends it.
func (im *Import) append(ctx context.Context, missing func() []*metapb.JournalEntry) error {
	for range maxImportAppends {
		all := missing()
		if len(all) == 0 {
			return nil
		}
		for i, e := range all {
			e.Index, e.TimeMs = im.through+1+uint64(i), im.Now().UnixMilli()
		}
		b, err := EncodeJournal(im.through, all)
		if err != nil {
			return err
		}
		crc := crc32.Checksum(b, castagnoli)
		key := journalKey(im.Prefix, im.ID, im.through+1)
		_, err = im.Store.Put(ctx, key, objstore.BytesBody(b), objstore.PutOptions{IfNoneMatch: true, CRC32C: &crc, Cause: "import"})
		if err != nil && !errors.Is(err, objstore.ErrPrecondition) {
			return err
		}
		if err := im.readJournal(ctx); err != nil {
			return err
		}
	}
	if len(missing()) == 0 {
		return nil
	}
	return fmt.Errorf("tiering: %d other importers were faster each time; run this one alone", maxImportAppends)
}

// configsOf are those of a topic.
func (im *Import) configsOf(topic string) map[string]string {
	if own, ok := im.TopicConfigs[topic]; ok {
		return own
	}
	return im.Configs
}

// topicRecord makes the topic, or more partitions of it, known; nil when that is so already.
func (im *Import) topicRecord(out *ImportedPartition) *metapb.JournalRecord {
	have, ok := im.topics[out.TopicID]
	switch {
	case !ok:
		return &metapb.JournalRecord{Body: &metapb.JournalRecord_TopicCreated{TopicCreated: &metapb.TopicCreated{
			TopicId: out.TopicID[:], Name: out.Topic, Configs: maps.Clone(im.configsOf(out.Topic)), Partitions: out.Partition + 1,
		}}}
	case have <= out.Partition:
		return &metapb.JournalRecord{Body: &metapb.JournalRecord_PartitionsCreated{PartitionsCreated: &metapb.PartitionsCreated{
			TopicId: out.TopicID[:], Partitions: out.Partition + 1,
		}}}
	}
	return nil
}

// Survey tells what Partition would take, and does nothing. Segments and bytes are counted, records are not.
func (im *Import) Survey(dir *commitlog.ForeignLogDir, p commitlog.ForeignPartition, topic string) (ImportedPartition, error) {
	out := ImportedPartition{Topic: topic, Partition: p.Partition}
	if im.ID != "" {
		out.TopicID = im.TopicID(topic)
	}
	if im.Now == nil {
		im.Now = time.Now
	}
	log, err := dir.Log(p, importIndexInterval, im.Now().UnixMilli())
	if err != nil {
		return out, err
	}
	out.LogStart, out.End, out.LeftOut, out.Missing = log.LogStart, log.End, log.LeftOut, log.Missing
	for {
		exp, err := log.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.Segments, out.Bytes = out.Segments+1, out.Bytes+exp.Log.Len
		exp.Close()
	}
}
