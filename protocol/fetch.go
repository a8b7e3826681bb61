package protocol

import "encoding/binary"

// FetchResponse is the answer to a Fetch request, versions 4 to 18
// (FetchResponse.json). It exists beside kmsg's because records are spans here,
// which may be file ranges.
type FetchResponse struct {
	ThrottleMs int32
	ErrorCode  ErrorCode // v7+
	SessionID  int32     // v7+
	Topics     []FetchTopic
	Nodes      []FetchNode // v16+, tagged: endpoints of leaders named in partitions
}

// FetchTopic is one topic of a FetchResponse.
type FetchTopic struct {
	Topic      string // v4-v12
	TopicID    UUID   // v13+
	Partitions []FetchPartition
}

// FetchPartition is one partition of a FetchResponse. NewFetchPartition sets
// the fields whose "absent" value is not zero.
type FetchPartition struct {
	Partition        int32
	ErrorCode        ErrorCode
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64            // v5+
	Aborted          []FetchAborted   // nil is null: not read_committed
	PreferredReplica int32            // v11+, -1 none
	Records          []Span           // nil is an empty record set
	Diverging        *FetchEpochEnd   // v12+, tagged
	CurrentLeader    *FetchLeader     // v12+, tagged
	Snapshot         *FetchSnapshotID // v12+, tagged
}

// FetchAborted names an aborted transaction in the range of the records.
type FetchAborted struct{ ProducerID, FirstOffset int64 }

// FetchEpochEnd is the largest epoch and its end offset that leader and
// follower have in common.
type FetchEpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// FetchLeader is the current leader of a partition, -1 where unknown.
type FetchLeader struct{ LeaderID, LeaderEpoch int32 }

// FetchSnapshotID names a snapshot to fetch first (KRaft only).
type FetchSnapshotID struct {
	EndOffset int64
	Epoch     int32
}

// FetchNode is a broker endpoint; an empty Rack is null.
type FetchNode struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   string
}

// NewFetchPartition returns an empty answer for a partition: no offsets known,
// no preferred replica, no records.
func NewFetchPartition(partition int32) FetchPartition {
	return FetchPartition{Partition: partition, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReplica: -1}
}

// AppendFetchResponse encodes a whole response frame as a vector: spans of
// memory with the size prefix and header first, and the record spans between
// them untouched, in order. The caller owns the result, and with it the duty to
// call each Release once. Version must be one that Supported accepts.
func AppendFetchResponse(resp *FetchResponse, version int16, corr int32) []Span {
	e := fetchEncoder{version: version, flexible: version >= 12, buf: make([]byte, 0, fetchSizeHint(resp))}
	e.buf = append(e.buf, 0, 0, 0, 0)
	e.buf = AppendResponseHeader(e.buf, KeyFetch, version, corr)
	e.response(resp)
	e.cut()
	binary.BigEndian.PutUint32(e.spans[0].Bytes, uint32(SpansLen(e.spans)-4))
	return e.spans
}

// fetchSizeHint is an upper bound of the bytes beside records, within a few
// rare tagged fields, so that the buffer is allocated once.
func fetchSizeHint(resp *FetchResponse) int {
	n := 64
	for i := range resp.Topics {
		t := &resp.Topics[i]
		n += 32 + len(t.Topic)
		for j := range t.Partitions {
			n += 96 + 17*len(t.Partitions[j].Aborted)
		}
	}
	return n + 128*len(resp.Nodes)
}

type fetchEncoder struct {
	version  int16
	flexible bool
	buf      []byte // bytes since the last cut
	spans    []Span
}

// cut moves the bytes so far into a span; what follows goes on in the same
// backing array, which the spans before it no longer grow into.
func (e *fetchEncoder) cut() {
	if len(e.buf) > 0 {
		e.spans = append(e.spans, MemSpan(e.buf[:len(e.buf):len(e.buf)]))
		e.buf = e.buf[len(e.buf):]
	}
}

func (e *fetchEncoder) i16(v int16)      { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *fetchEncoder) i32(v int32)      { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *fetchEncoder) i64(v int64)      { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }
func (e *fetchEncoder) uvarint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(uint64(n) + 1)
	} else {
		e.i32(int32(n))
	}
}

func (e *fetchEncoder) str(s string) {
	if e.flexible {
		e.uvarint(uint64(len(s)) + 1)
	} else {
		e.i16(int16(len(s)))
	}
	e.buf = append(e.buf, s...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	}
}

func (e *fetchEncoder) response(r *FetchResponse) {
	e.i32(r.ThrottleMs)
	if e.version >= 7 {
		e.i16(int16(r.ErrorCode))
		e.i32(r.SessionID)
	}
	e.arrayLen(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		if e.version >= 13 {
			e.buf = append(e.buf, t.TopicID[:]...)
		} else {
			e.str(t.Topic)
		}
		e.arrayLen(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		e.noTags()
	}
	if e.version < 16 || len(r.Nodes) == 0 {
		e.noTags()
		return
	}
	e.buf = append(e.buf, 1)
	e.tag(0, func() { e.nodes(r.Nodes) })
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.i32(p.Partition)
	e.i16(int16(p.ErrorCode))
	e.i64(p.HighWatermark)
	e.i64(p.LastStableOffset)
	if e.version >= 5 {
		e.i64(p.LogStartOffset)
	}
	e.aborted(p.Aborted)
	if e.version >= 11 {
		e.i32(p.PreferredReplica)
	}
	size := SpansLen(p.Records)
	if e.flexible {
		e.uvarint(uint64(size) + 1)
	} else {
		e.i32(int32(size))
	}
	if size > 0 {
		e.cut()
		e.spans = append(e.spans, p.Records...)
	}
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) aborted(list []FetchAborted) {
	switch {
	case list != nil:
		e.arrayLen(len(list))
	case e.flexible:
		e.buf = append(e.buf, 0)
	default:
		e.i32(-1)
	}
	for _, a := range list {
		e.i64(a.ProducerID)
		e.i64(a.FirstOffset)
		e.noTags()
	}
}

func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	n := uint64(0)
	for _, present := range [...]bool{p.Diverging != nil, p.CurrentLeader != nil, p.Snapshot != nil} {
		if present {
			n++
		}
	}
	e.uvarint(n)
	if d := p.Diverging; d != nil {
		e.tag(0, func() { e.i32(d.Epoch); e.i64(d.EndOffset); e.noTags() })
	}
	if l := p.CurrentLeader; l != nil {
		e.tag(1, func() { e.i32(l.LeaderID); e.i32(l.LeaderEpoch); e.noTags() })
	}
	if s := p.Snapshot; s != nil {
		e.tag(2, func() { e.i64(s.EndOffset); e.i32(s.Epoch); e.noTags() })
	}
}

func (e *fetchEncoder) nodes(nodes []FetchNode) {
	e.arrayLen(len(nodes))
	for _, n := range nodes {
		e.i32(n.NodeID)
		e.str(n.Host)
		e.i32(n.Port)
		if n.Rack == "" {
			e.buf = append(e.buf, 0)
		} else {
			e.str(n.Rack)
		}
		e.noTags()
	}
}

// tag writes a tagged field: number, length, value. Values are small, so the
// value is written first and moved behind its length.
func (e *fetchEncoder) tag(number uint64, value func()) {
	e.uvarint(number)
	at := len(e.buf)
	value()
	var size [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(size[:], uint64(len(e.buf)-at))
	e.buf = append(e.buf, size[:n]...)
	copy(e.buf[at+n:], e.buf[at:len(e.buf)-n])
	copy(e.buf[at:], size[:n])
}
