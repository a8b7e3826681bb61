package metastore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// TestGolden runs the transcripts under testdata against a bare state machine; `go test -rewrite` writes them anew. Each command is
// applied twice by the rig.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		r := newRig(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if fields := strings.Fields(line); len(fields) > 0 {
					out.WriteString(goldenLine(t, r, fields))
				}
			}
			return out.String()
		})
	})
}

// words are the key=value fields of a line.
type words map[string]string

func (w words) num(key string) int64 {
	n, _ := strconv.ParseInt(w[key], 10, 64)
	return n
}

func (w words) ids(key string) (out []int32) {
	for _, s := range strings.Split(w[key], ",") {
		if n, err := strconv.ParseInt(s, 10, 32); err == nil {
			out = append(out, int32(n))
		}
	}
	return out
}

func (w words) uids(key string) (out [][]byte) {
	for _, s := range strings.Split(w[key], ",") {
		id := uid(s)
		out = append(out, id[:])
	}
	return out
}

func goldenLine(t *testing.T, r *rig, fields []string) string {
	w := words{}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		w[key] = value
	}
	switch fields[0] {
	case "time":
		r.now = w.num("ms")
		return ""
	case "rows":
		return rowsText(t, r, w)
	case "image":
		return describe(r.f.hub.img.Load())
	case "journal":
		return journalText(t, r)
	case "limit":
		r.f.journalLimit = w.num("entries")
		return ""
	}
	cmd := goldenCommand(t, fields[0], w)
	res, err := r.apply(cmd)
	text := fields[0]
	if s := w["id"]; s != "" {
		text += " " + s
	}
	switch {
	case err != nil:
		text += ": " + err.Error()
	case res.Reason != "":
		text += ": " + res.State.String() + " because " + res.Reason
	case res.State != SegUnknown:
		text += ": " + res.State.String()
	default:
		text += ": ok"
	}
	for _, extra := range []struct {
		name string
		n    int64
	}{{"epoch", res.Epoch}, {"first", res.First}, {"count", res.Count}, {"kept", int64(res.Kept)}} {
		if extra.n != 0 {
			text += fmt.Sprintf(" %s=%d", extra.name, extra.n)
		}
	}
	return text + "\n"
}

func goldenCommand(t *testing.T, name string, w words) *metapb.Command {
	topic := uid(w["topic"])
	part := int32(w.num("part"))
	epoch := int32(w.num("epoch"))
	switch name {
	case "create":
		c := createTopicCmd(w["topic"], int(w.num("partitions")))
		if w["index"] != "" {
			c.GetCreateTopic().ImageIndex = uint64(w.num("index"))
		}
		if w["id"] != "" {
			c.GetCreateTopic().TopicId = w.uids("id")[0]
		}
		return c
	case "delete-topic":
		return deleteTopicCmd(w["topic"])
	case "start", "finish":
		s := goldenSegment(w)
		if name == "start" {
			return startCmd(s)
		}
		return finishCmd(s)
	case "replace":
		return &metapb.Command{Body: &metapb.Command_SegmentReplace{SegmentReplace: &metapb.SegmentReplace{Old: w.uids("old"), Segment: goldenSegment(w).toProto()}}}
	case "delete":
		return &metapb.Command{Body: &metapb.Command_SegmentsDelete{SegmentsDelete: &metapb.SegmentsDelete{TopicId: topic[:], Partition: part, LeaderEpoch: epoch, Ids: w.uids("ids")}}}
	case "gone":
		return &metapb.Command{Body: &metapb.Command_SegmentsGone{SegmentsGone: &metapb.SegmentsGone{Ids: w.uids("ids")}}}
	case "log-start":
		return &metapb.Command{Body: &metapb.Command_AdvanceLogStart{AdvanceLogStart: &metapb.AdvanceLogStart{TopicId: topic[:], Partition: part, LeaderEpoch: epoch, Offset: w.num("to")}}}
	case "clear":
		return &metapb.Command{Body: &metapb.Command_JournalClear{JournalClear: &metapb.JournalClear{Through: uint64(w.num("through"))}}}
	case "journal-switch":
		return &metapb.Command{Body: &metapb.Command_JournalSwitch{JournalSwitch: &metapb.JournalSwitch{Enabled: w["on"] == "true"}}}
	}
	return goldenClusterCommand(t, name, w)
}

func goldenSegment(w words) *RemoteSegment {
	s := segment(w["topic"], w["id"], w.num("base"), w.num("next"), int32(w.num("epoch")))
	s.Partition = int32(w.num("part"))
	s.Generation = uint32(w.num("gen"))
	s.DeadlineMs = w.num("deadline")
	if b := w.ids("broker"); len(b) > 0 {
		s.Broker = b[0]
	}
	if w["lineage"] != "" {
		s.Epochs = nil
		for _, e := range strings.Split(w["lineage"], ",") {
			var x EpochStart
			fmt.Sscanf(e, "%d@%d", &x.Epoch, &x.Start)
			s.Epochs = append(s.Epochs, x)
		}
	}
	return s
}

func goldenClusterCommand(t *testing.T, name string, w words) *metapb.Command {
	id := int32(w.num("id"))
	switch name {
	case "register":
		return &metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
			Broker: Registration(&Broker{ID: id, Incarnation: uid(w["inc"]), Dirs: []protocol.UUID{uid("dir")}}), ExpectEpoch: w.num("expect"), Changes: partitionChanges(w),
		}}}
	case "fence":
		return &metapb.Command{Body: &metapb.Command_FenceBroker{FenceBroker: &metapb.FenceBroker{Id: id, Epoch: w.num("epoch"), Changes: partitionChanges(w)}}}
	case "unfence":
		return &metapb.Command{Body: &metapb.Command_UnfenceBroker{UnfenceBroker: &metapb.UnfenceBroker{Id: id, Epoch: w.num("epoch"), Changes: partitionChanges(w)}}}
	case "unregister":
		return &metapb.Command{Body: &metapb.Command_UnregisterBroker{UnregisterBroker: &metapb.UnregisterBroker{Id: id, Epoch: w.num("epoch"), Changes: partitionChanges(w)}}}
	case "change":
		return &metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{Changes: partitionChanges(w)}}}
	case "add-partitions":
		topic := uid(w["topic"])
		c := &metapb.CreatePartitions{TopicId: topic[:], ExpectCount: int32(w.num("expect"))}
		for range w.num("add") {
			c.Partitions = append(c.Partitions, onePartition(1))
		}
		return &metapb.Command{Body: &metapb.Command_CreatePartitions{CreatePartitions: c}}
	case "config":
		key, value := w["key"], w["value"]
		ch := []*metapb.ConfigChange{{Key: key, Value: &value}}
		if value == "" {
			ch[0].Value = nil
		}
		if w["topic"] == "" {
			return &metapb.Command{Body: &metapb.Command_AlterBrokerConfigs{AlterBrokerConfigs: &metapb.AlterBrokerConfigs{Broker: w["broker"], ExpectVersion: uint64(w.num("expect")), Changes: ch}}}
		}
		return &metapb.Command{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{TopicId: w.uids("topic")[0], ExpectVersion: uint64(w.num("expect")), Changes: ch}}}
	case "producer-ids":
		return &metapb.Command{Body: &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{Broker: id, BrokerEpoch: w.num("epoch"), ExpectNext: w.num("expect"), Count: 1000}}}
	}
	t.Fatalf("unknown command %q", name)
	return nil
}

// partitionChanges reads part=topic-n pe= le= isr= elr= leader= newle=.
func partitionChanges(w words) []*metapb.PartitionChange {
	if w["of"] == "" {
		return nil
	}
	name, n, _ := strings.Cut(w["of"], "-")
	topic := uid(name)
	part, _ := strconv.Atoi(n)
	return []*metapb.PartitionChange{{
		TopicId: topic[:], Partition: int32(part), ExpectPartitionEpoch: int32(w.num("pe")), ExpectLeaderEpoch: int32(w.num("le")),
		State: &metapb.Partition{
			Replicas: []int32{1, 2}, Dirs: [][]byte{make([]byte, 16), make([]byte, 16)}, Isr: w.ids("isr"), Elr: w.ids("elr"),
			Leader: int32(w.num("leader")), LeaderEpoch: int32(w.num("newle")),
		},
	}}
}

func rowsText(t *testing.T, r *rig, w words) string {
	topic, part := uid(w["topic"]), int32(w.num("part"))
	var b strings.Builder
	tier, err := readTier(r.f.handle.db, topic, part)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%s-%d log start %d end %d bytes %d count %d epochs %v\n", w["topic"], part, tier.LogStart, tier.End, tier.Bytes, tier.Count, tier.Epochs)
	for _, s := range segments(t, r.f, topic, part) {
		fmt.Fprintf(&b, "  %s %s [%d, %d) epoch %d gen %d since %d", s.State, uidName(s.ID), s.Base, s.Next, s.LeaderEpoch, s.Generation, s.StateTimeMs)
		if s.State == SegDeleteStarted {
			fmt.Fprintf(&b, " announced at %d never finished %v until %d", s.DeleteIndex, s.NeverFinished, s.DeadlineMs)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func journalText(t *testing.T, r *rig) string {
	var b strings.Builder
	c := r.f.hub.img.Load().cluster
	fmt.Fprintf(&b, "journal on %v, %d entries, in the bucket through %d\n", c.Journal, c.JournalEntries, c.JournaledThrough)
	n := 0
	err := eachRow(r.f.handle.db, []byte{nsJournal}, func(_, value []byte) error {
		e := &metapb.JournalEntry{}
		if err := proto.Unmarshal(value, e); err != nil {
			return err
		}
		n++
		for _, rec := range e.Records {
			fmt.Fprintf(&b, "  %d: %s\n", e.Index, recordText(rec))
		}
		return nil
	})
	if err != nil || int64(n) != c.JournalEntries {
		t.Fatalf("%d entries, counted %d: %v", n, c.JournalEntries, err)
	}
	return b.String()
}

// recordText is short, and stable where prototext is not.
func recordText(rec *metapb.JournalRecord) string {
	switch x := rec.Body.(type) {
	case *metapb.JournalRecord_Finished:
		return fmt.Sprintf("finished %s [%d, %d)", x.Finished.Id, x.Finished.Base, x.Finished.Next)
	case *metapb.JournalRecord_Replaced:
		return fmt.Sprintf("replaced %s by %s [%d, %d)", x.Replaced.Old, x.Replaced.Segment.Id, x.Replaced.Segment.Base, x.Replaced.Segment.Next)
	case *metapb.JournalRecord_DeleteStarted:
		var ids []string
		for _, s := range x.DeleteStarted.Segments {
			ids = append(ids, string(s.Id)+"@"+s.Location)
		}
		return fmt.Sprintf("delete %v log start %d", ids, x.DeleteStarted.LogStart)
	case *metapb.JournalRecord_TopicCreated:
		return fmt.Sprintf("topic created %s %s %d partitions %v", x.TopicCreated.Name, x.TopicCreated.TopicId, x.TopicCreated.Partitions, x.TopicCreated.Configs)
	case *metapb.JournalRecord_TopicConfigs:
		return fmt.Sprintf("topic configs %s %v", x.TopicConfigs.TopicId, x.TopicConfigs.Configs)
	case *metapb.JournalRecord_LogStart:
		return fmt.Sprintf("log start %s-%d %d", x.LogStart.TopicId, x.LogStart.Partition, x.LogStart.LogStart)
	}
	return strings.Join(strings.Fields(prototext.MarshalOptions{}.Format(rec)), " ")
}
