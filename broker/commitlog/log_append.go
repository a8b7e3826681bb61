package commitlog

import (
	"errors"
	"fmt"
	"io"

	"varve/protocol"
	"varve/protocol/record"
)

// AppendAsLeader validates one batch, stamps it with the next offsets and the
// leader epoch, and writes it. b is changed in place; where the topic asks for
// another codec a copy is written.
//
// Errors carry Kafka codes (LogValidator.java, ProducerAppendInfo.java):
// CorruptMessage, InvalidRecord, InvalidTimestamp (with RecordErrors),
// MessageTooLarge, RecordListTooLarge, OutOfOrderSequenceNumber,
// InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced,
// FencedLeaderEpoch, KafkaStorageError. A full disk refuses the append and
// leaves the log as it was; any other failure of the disk takes the directory
// offline.
func (l *Log) AppendAsLeader(b record.Batch, leaderEpoch int32, origin Origin) (AppendInfo, error) {
	cfg := l.cfg.Load()
	info := AppendInfo{FirstOffset: -1, LastOffset: -1, LogAppendTime: -1, LogStart: l.logStart.Load()}
	b, err := l.validate(b, cfg, origin)
	if err != nil {
		var records *record.RecordsError
		if errors.As(err, &records) {
			info.RecordErrors = records.Records
		}
		return info, err
	}
	marker, err := readMarker(b)
	if err != nil {
		return info, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return info, err
	}
	if b.ProducerID() >= 0 {
		dup, isDup, err := l.producers.check(b, origin, marker.coordinatorEpoch)
		if err != nil {
			return info, err
		}
		if isDup {
			info.FirstOffset, info.LastOffset, info.Duplicate = dup.firstOffset(), dup.lastOffset, true
			if cfg.LogAppendTime {
				info.LogAppendTime = dup.timestamp
			}
			return info, nil
		}
	}
	if latest := l.epochs.latest(); leaderEpoch < latest {
		return info, protocol.Errorf(protocol.FencedLeaderEpoch, "append at leader epoch %d, the log has %d", leaderEpoch, latest)
	}
	b.SetBaseOffset(l.end.Load())
	b.SetLeaderEpoch(leaderEpoch)
	if err := l.appendLocked(b, b, cfg); err != nil {
		return info, err
	}
	info.FirstOffset, info.LastOffset = b.BaseOffset(), b.LastOffset()
	if cfg.LogAppendTime {
		info.LogAppendTime = b.MaxTimestamp()
	}
	return info, nil
}

// validate holds a batch against LogValidator's rules and returns what is to be
// written.
func (l *Log) validate(b record.Batch, cfg *Config, origin Origin) (record.Batch, error) {
	if b.Size() > int(cfg.MaxMessageBytes) && origin == OriginClient {
		return nil, protocol.Errorf(protocol.MessageTooLarge, "record batch of %d bytes, max.message.bytes is %d", b.Size(), cfg.MaxMessageBytes)
	}
	client := origin == OriginClient
	if client && b.BaseOffset() != 0 { // UnifiedLog.scala, analyzeAndValidateRecords
		return nil, protocol.Errorf(protocol.InvalidRecord, "record batch has base offset %d, producers send 0", b.BaseOffset())
	}
	now := l.m.nowMs()
	info, err := b.Validate(record.Limits{
		Client:          client,
		RequireKeys:     cfg.RequireKeys && !b.Control(),
		CheckTimestamps: client && !cfg.LogAppendTime,
		NowMs:           now,
		BeforeMaxMs:     cfg.TimestampBeforeMaxMs,
		AfterMaxMs:      cfg.TimestampAfterMaxMs,
	})
	if err != nil {
		return nil, err
	}
	if cfg.Codec != CodecProducer && cfg.Codec != b.Codec() && !b.Control() {
		if b, err = record.Rewrite(b, cfg.Codec, cfg.CodecLevel); err != nil {
			return nil, err
		}
		if b.Size() > int(cfg.MaxMessageBytes) {
			return nil, protocol.Errorf(protocol.MessageTooLarge, "record batch of %d bytes after compression.type was applied, max.message.bytes is %d", b.Size(), cfg.MaxMessageBytes)
		}
	}
	switch {
	case cfg.LogAppendTime:
		b.SetLogAppendTime(now)
	case info.MaxTimestamp != b.MaxTimestamp():
		b.SetMaxTimestamp(info.MaxTimestamp)
	}
	if b.Size() > int(cfg.SegmentBytes) {
		return nil, protocol.Errorf(protocol.RecordListTooLarge, "record batch of %d bytes, segment.bytes is %d", b.Size(), cfg.SegmentBytes)
	}
	return b, nil
}

// readMarker reads what a control batch says; the zero marker for others.
func readMarker(b record.Batch) (endMarker, error) {
	if !b.Control() || b.ProducerID() < 0 {
		return endMarker{}, nil
	}
	c, err := b.ControlRecord()
	if err != nil {
		return endMarker{}, err
	}
	ends := c.Type == record.Abort || c.Type == record.Commit
	return endMarker{ends: ends, abort: c.Type == record.Abort, coordinatorEpoch: c.CoordinatorEpoch}, nil
}

// AppendAsFollower writes whole batches as the leader sent them. A torn batch
// at the end, as fetch answers may have, is left out.
//
// Errors: CorruptMessage for a wrong CRC, OffsetOutOfRange for batches that
// do not follow the log, KafkaStorageError.
func (l *Log) AppendAsFollower(batches []byte) (AppendInfo, error) {
	info := AppendInfo{FirstOffset: -1, LastOffset: -1, LogAppendTime: -1, LogStart: l.logStart.Load()}
	whole, err := checkFollowed(batches)
	if err != nil || len(whole) == 0 {
		return info, err
	}
	cfg := l.cfg.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return info, err
	}
	first := record.Batch(whole)
	if first.BaseOffset() < l.end.Load() {
		return info, protocol.Errorf(protocol.OffsetOutOfRange, "batch at offset %d does not follow the log, which ends at %d", first.BaseOffset(), l.end.Load())
	}
	for len(whole) > 0 {
		run, rest := l.cutRun(whole, cfg)
		head, _, err := record.Next(run)
		if err != nil {
			return info, err
		}
		if err := l.appendLocked(run, head, cfg); err != nil {
			return info, err
		}
		if info.FirstOffset < 0 {
			info.FirstOffset = head.BaseOffset()
		}
		info.LastOffset = l.end.Load() - 1
		whole = rest
	}
	return info, nil
}

// checkFollowed returns the whole batches at the head of buf, after checking
// their CRCs and that offsets and leader epochs rise.
func checkFollowed(buf []byte) ([]byte, error) {
	n, next, epoch := 0, int64(-1), int32(-1)
	for rest := buf; ; {
		b, r, err := record.Next(rest)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return buf[:n], nil
		}
		if err != nil {
			return nil, err
		}
		if err := b.CheckCRC(); err != nil {
			return nil, err
		}
		if b.BaseOffset() < max(next, 0) || b.LastOffsetDelta() < 0 || b.LeaderEpoch() < epoch {
			return nil, protocol.Errorf(protocol.CorruptMessage, "%s follows offset %d of epoch %d", b, next-1, epoch)
		}
		if _, err := readMarker(b); err != nil {
			return nil, err
		}
		n, next, epoch, rest = n+b.Size(), b.NextOffset(), max(epoch, b.LeaderEpoch()), r
	}
}

// cutRun splits off the batches of one leader epoch that go into one segment:
// all that fit the active one, or the first, which then rolls.
func (l *Log) cutRun(buf []byte, cfg *Config) (run, rest []byte) {
	seg, n := l.active(), 0
	room := int64(cfg.SegmentBytes) - seg.size()
	epoch := record.Batch(buf).LeaderEpoch()
	for rest = buf; len(rest) > 0; {
		b, r, err := record.Next(rest)
		if err != nil {
			break
		}
		if n > 0 && (int64(n+b.Size()) > room || !fitsRelative(seg.base, b.LastOffset()) || b.LeaderEpoch() != epoch) {
			break
		}
		n, rest = n+b.Size(), r
	}
	return buf[:n], rest
}

// appendLocked writes a run of batches to the active segment, rolling it first
// where need be, and takes them into all that is kept in memory. head is the
// first of them.
func (l *Log) appendLocked(run []byte, head record.Batch, cfg *Config) error {
	last, maxTs := head.LastOffset(), head.MaxTimestamp()
	if len(run) > len(head) {
		last, maxTs = runEnd(run)
	}
	if err := l.m.disk.admit(int64(len(run)), l.WaitsForTier()); err != nil {
		return err
	}
	seg := l.active()
	if seg.mustRoll(cfg, int64(len(run)), last, maxTs, l.m.nowMs) {
		base := l.end.Load()
		if !fitsRelative(base, last) {
			base = head.BaseOffset()
		}
		if err := l.roll(base, head.BaseOffset()); err != nil {
			return err
		}
		seg = l.active()
	}
	if !fitsRelative(seg.base, last) {
		return protocol.Errorf(protocol.InvalidRecord, "offset %d is too far from segment base %d", last, seg.base)
	}
	if epoch := head.LeaderEpoch(); epoch > l.epochs.latest() {
		if err := l.epochs.assign(epoch, head.BaseOffset()); err != nil {
			return l.diskError("leader epoch checkpoint", err)
		}
	}
	at := seg.size()
	if err := seg.log.writeAt(run, at); err != nil {
		return l.cutPartial(seg, at, err)
	}
	if at == 0 {
		seg.createdMs = l.m.nowMs()
	}
	if err := l.took(seg, run, at, cfg); err != nil {
		return err
	}
	l.askTend(seg, cfg)
	return nil
}

// cutPartial takes a failed write's bytes off again, so that a full disk costs
// only this append.
func (l *Log) cutPartial(seg *segment, sizeBytes int64, cause error) error {
	if !isFull(cause) {
		return l.diskError("append", cause)
	}
	if err := seg.log.truncate(sizeBytes); err != nil {
		return l.m.goOffline(fmt.Errorf("cutting a partial append of %s: %w", l.tp, err))
	}
	return l.diskError("append", cause)
}

func runEnd(run []byte) (last, maxTs int64) {
	maxTs = record.NoTimestamp
	for len(run) > 0 {
		b, rest, err := record.Next(run)
		if err != nil {
			break
		}
		last, maxTs = b.LastOffset(), max(maxTs, b.MaxTimestamp())
		run = rest
	}
	return last, maxTs
}

// took takes written batches into indexes, producers and epochs, and then shows
// them to readers.
func (l *Log) took(seg *segment, run []byte, at int64, cfg *Config) error {
	for len(run) > 0 {
		b, rest, err := record.Next(run)
		if err != nil {
			return &protocol.InvariantError{What: "appended bytes are not batches: " + err.Error()}
		}
		seg.note(b, at, int64(b.Size()), cfg.IndexIntervalBytes)
		l.track(seg, b)
		at += int64(b.Size())
		run = rest
	}
	l.end.Store(seg.next())
	if l.unflushedFrom.Load() == 0 {
		l.unflushedFrom.Store(l.m.nowMs())
	}
	if seg.next()-l.recoveryPoint.Load() >= cfg.FlushMessages {
		l.m.flusher.ask(l)
	}
	return nil
}

// track takes one batch of seg into the producer state, and the transaction it
// ends into the transaction index. A control batch that cannot be read was
// refused before it came here, or is older than this code, and ends nothing.
func (l *Log) track(seg *segment, b record.Batch) {
	if b.ProducerID() < 0 {
		return
	}
	marker, err := readMarker(b)
	if err != nil {
		marker = endMarker{}
	}
	ended, ok := l.producers.apply(b, marker, l.m.nowMs())
	if !ok {
		return
	}
	lastStable := l.producers.settle(ended)
	if marker.abort {
		seg.noteAborted(AbortedTxn{ProducerID: ended.producerID, FirstOffset: ended.first,
			LastOffset: ended.last, LastStableOffset: lastStable})
	}
}
