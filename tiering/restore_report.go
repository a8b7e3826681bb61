package tiering

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"varve/metastore/metapb"
	"varve/protocol"
)

// maxFindings bounds what a report tells in words.
const maxFindings = 1000

// RestoreReport says what came back, up to when, and what is known to be lost. It is the answer of `varve tier restore`, and
// stands in the new cluster's folder as meta/restore/<id>.json.
type RestoreReport struct {
	ID       string `json:"id,omitempty"` // of the restore; empty for a dry run
	DryRun   bool   `json:"dryRun,omitempty"`
	Salvage  bool   `json:"salvage,omitempty"`
	Source   string `json:"source"`            // cluster whose state it was
	Cluster  string `json:"cluster,omitempty"` // cluster that took it in
	Asked    string `json:"asked,omitempty"`   // point in time that was asked for
	Recovery string `json:"recoveryPoint"`     // time of the last change that is in

	SnapshotIndex  uint64 `json:"snapshotIndex,omitempty"`
	SnapshotTime   string `json:"snapshotTime,omitempty"`
	JournalObjects int    `json:"journalObjects"`
	JournalEntries int    `json:"journalEntries"`
	LastIndex      uint64 `json:"lastIndex,omitempty"` // raft index of the last entry of the journal that is in

	Topics         []RestoredTopic `json:"topics"`
	Partitions     int             `json:"partitions"`
	Segments       int64           `json:"segments"`
	Bytes          int64           `json:"bytes"` // of logs
	GroupOffsets   int             `json:"groupOffsets"`
	OffsetsTime    string          `json:"offsetsTime,omitempty"` // group offsets are as of then
	OffsetsClamped int             `json:"offsetsClamped"`        // lay outside of what came back
	NextProducerID int64           `json:"nextProducerId"`
	MissingObjects int             `json:"missingObjects"`
	Unlisted       int             `json:"unlistedObjects"` // no row names them: to be deleted, after the release
	ToDelete       int64           `json:"toDelete"`        // objects that were on their way out, too
	Lost           []string        `json:"lost"`            // in words
	Findings       []string        `json:"findings"`

	mu      sync.Mutex
	pointMs int64
	byID    map[protocol.UUID]int           // place in Topics
	ends    map[restoredPart]offsetInterval // by topic name
}

// RestoredTopic is one topic that came back.
type RestoredTopic struct {
	Name       string              `json:"name"`
	ID         string              `json:"id"`
	Partitions []RestoredPartition `json:"partitions"`
}

// RestoredPartition holds offsets [LogStart, End); the next record gets End.
type RestoredPartition struct {
	Partition int32 `json:"partition"`
	LogStart  int64 `json:"logStart"`
	End       int64 `json:"end"`
	Segments  int64 `json:"segments"`
	Bytes     int64 `json:"bytes"`
}

type restoredPart struct {
	topic     string
	partition int32
}

type offsetInterval struct{ start, end int64 }

func newRestoreReport(source string) *RestoreReport {
	return &RestoreReport{
		Source: source, Topics: []RestoredTopic{}, Lost: []string{}, Findings: []string{},
		byID: map[protocol.UUID]int{}, ends: map[restoredPart]offsetInterval{},
	}
}

func (r *RestoreReport) find(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findLocked(fmt.Sprintf(format, args...))
}

func (r *RestoreReport) findLocked(what string) {
	switch n := len(r.Findings); {
	case n < maxFindings:
		r.Findings = append(r.Findings, what)
	case n == maxFindings:
		r.Findings = append(r.Findings, "there is more")
	}
}

// addTopic books a topic, each partition as empty.
func (r *RestoreReport) addTopic(id protocol.UUID, row *metapb.RestoringTopicRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := RestoredTopic{Name: row.Name, ID: id.String(), Partitions: make([]RestoredPartition, len(row.LeaderEpochs))}
	for p := range t.Partitions {
		t.Partitions[p].Partition = int32(p)
		r.ends[restoredPart{row.Name, int32(p)}] = offsetInterval{}
	}
	r.byID[id] = len(r.Topics)
	r.Topics = append(r.Topics, t)
	r.Partitions += len(t.Partitions)
}

func (r *RestoreReport) addPartition(p *sourcePartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Segments += p.state.Count
	r.Bytes += p.state.Bytes
	r.MissingObjects += p.missing
	r.Unlisted += p.unlisted
	r.ToDelete += p.dying
	for _, f := range p.found {
		r.findLocked(f)
	}
	at, ok := r.byID[p.key.topic]
	if !ok || int(p.key.partition) >= len(r.Topics[at].Partitions) {
		return
	}
	end := max(p.state.End, p.state.LogStart)
	r.Topics[at].Partitions[p.key.partition] = RestoredPartition{p.key.partition, p.state.LogStart, end, p.state.Count, p.state.Bytes}
	r.ends[restoredPart{p.name, p.key.partition}] = offsetInterval{p.state.LogStart, end}
}

// clamp brings offsets to what exists, and passes over those of partitions that did not come back.
func (r *RestoreReport) clamp(in []*metapb.GroupOffset) (out []*metapb.GroupOffset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range in {
		e, ok := r.ends[restoredPart{o.Topic, o.Partition}]
		if !ok {
			continue
		}
		to := min(max(o.Offset, e.start), e.end)
		if to != o.Offset {
			r.OffsetsClamped++
		}
		o.Offset = to
		out = append(out, o)
	}
	r.GroupOffsets += len(out)
	return out
}

// close puts what was gathered in order.
func (r *RestoreReport) close(s *restoreSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Recovery, r.Asked = timeText(r.pointMs), timeText(s.toMs)
	r.NextProducerID = s.nextPID + restoreProducerMargin
	slices.SortFunc(r.Topics, func(a, b RestoredTopic) int { return cmp.Compare(a.Name, b.Name) })
	clear(r.byID)
	r.Lost = append(r.Lost, "records that were not in the tier at the recovery point: what a partition had from its `end` on")
	for _, t := range r.Topics {
		empty := true
		for _, p := range t.Partitions {
			empty = empty && p.End == 0
		}
		if empty {
			r.Lost = append(r.Lost, fmt.Sprintf("topic %s has nothing in the tier: it comes back empty, from offset 0", t.Name))
		}
	}
	switch {
	case r.Salvage:
		r.Lost = append(r.Lost, "group offsets, broker configs, and topic configs that changed after the last segment was written",
			"what had been deleted but was still in the bucket may be back: topics, and records below the log start")
	case r.OffsetsTime == "":
		r.Lost = append(r.Lost, "group offsets: the snapshot has none")
	default:
		r.Lost = append(r.Lost, "group offsets committed after "+r.OffsetsTime)
	}
}
