package metastore

import (
	"encoding/hex"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// tester is what *testing.T, *testing.F and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// rig drives a bare state machine, without Raft. Every command is applied twice, and the second time must change nothing.
type rig struct {
	t     tester
	f     *fsm
	index uint64
	now   int64
	logs  []*raft.Log
	once  bool // do not apply twice
}

func openFSM(t tester, fs vfs.FS) *fsm {
	t.Helper()
	folder, err := openFolder(fs, "meta", 1, "cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "varve-meta-") // for Raft's snapshots, of which there are none
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{opts: Options{Dir: dir, NodeID: 1, FS: fs}, folder: folder, hub: newHub()}
	if err := s.openState(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.fsm.close()
		folder.close()
		os.RemoveAll(dir)
	})
	return s.fsm
}

func newRig(t tester) *rig {
	r := &rig{t: t, f: openFSM(t, vfs.NewMem()), now: 1000}
	r.must(&metapb.Command{Body: &metapb.Command_Bootstrap{Bootstrap: &metapb.Bootstrap{ClusterId: "cluster", FeatureLevel: 1, Journal: true}}})
	return r
}

func (r *rig) log(cmd *metapb.Command) *raft.Log {
	r.t.Helper()
	cmd.TimeMs = r.now
	data, err := proto.Marshal(cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	r.index++
	l := &raft.Log{Index: r.index, Term: 1, Type: raft.LogCommand, Data: data}
	r.logs = append(r.logs, l)
	return l
}

func (r *rig) apply(cmd *metapb.Command) (Result, error) {
	r.t.Helper()
	a := r.f.Apply(r.log(cmd)).(applied)
	if r.f.failure() != nil {
		r.t.Fatal(r.f.failure())
	}
	if !r.once {
		before := dump(r.t, r.f)
		r.f.Apply(r.log(cmd))
		if after := dump(r.t, r.f); after != before {
			r.t.Fatalf("%T applied twice:\n%s\nthen\n%s", cmd.Body, before, after)
		}
	}
	return a.result, a.err
}

func (r *rig) must(cmd *metapb.Command) Result {
	r.t.Helper()
	res, err := r.apply(cmd)
	if err != nil {
		r.t.Fatalf("%T: %v", cmd.Body, err)
	}
	return res
}

// dump is every row but the applied index.
func dump(t tester, f *fsm) string {
	t.Helper()
	var b strings.Builder
	err := eachRow(f.handle.db, nil, func(key, value []byte) error {
		if key[0] != nsApplied {
			fmt.Fprintf(&b, "%c %s = %s\n", key[0], hex.EncodeToString(key[1:]), hex.EncodeToString(value))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// describe is the image as text.
func describe(img *Image) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %+v partitions %d\n", img.cluster, img.PartitionCount())
	for _, br := range img.Brokers() {
		fmt.Fprintf(&b, "broker %+v\n", *br)
	}
	for t := range img.Topics() {
		byID, _ := img.TopicByID(t.ID)
		fmt.Fprintf(&b, "topic %s %s version %d configs %v same %v\n", t.Name, t.ID, t.ConfigVersion, t.Configs, byID == t)
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, "  %s\n", partitionText(p))
		}
	}
	for it := img.configs.Iterator(); !it.Done(); {
		name, c, _ := it.Next()
		fmt.Fprintf(&b, "broker config %q %v\n", name, *c)
	}
	for it := img.tombstones.Iterator(); !it.Done(); {
		_, row, _ := it.Next()
		fmt.Fprintf(&b, "tombstone %s deleted at %d, %d swept\n", row.Name, row.DeleteIndex, row.Swept)
	}
	return b.String()
}

func partitionText(p *Partition) string {
	return fmt.Sprintf("%d replicas %v isr %v elr %v leader %d epoch %d partition-epoch %d", p.Index, p.Replicas, p.ISR, p.ELR, p.Leader, p.LeaderEpoch, p.PartitionEpoch)
}

// uid makes an id out of a short name.
func uid(name string) (id protocol.UUID) {
	copy(id[:], "----------------")
	copy(id[:], name)
	return id
}

func uidName(id protocol.UUID) string { return strings.TrimRight(string(id[:]), "-") }

func onePartition(leader int32) *metapb.Partition {
	return &metapb.Partition{Replicas: []int32{1, 2}, Dirs: [][]byte{make([]byte, 16), make([]byte, 16)}, Isr: []int32{leader}, Leader: leader}
}

func createTopicCmd(name string, partitions int) *metapb.Command {
	id := uid(name)
	c := &metapb.CreateTopic{TopicId: id[:], Name: name, Configs: map[string]string{"a": "1", "b": "2"}, ImageIndex: 1 << 40}
	for range partitions {
		c.Partitions = append(c.Partitions, onePartition(1))
	}
	return &metapb.Command{Body: &metapb.Command_CreateTopic{CreateTopic: c}}
}

func deleteTopicCmd(name string) *metapb.Command {
	id := uid(name)
	return &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: id[:]}}}
}

func startCmd(s *RemoteSegment) *metapb.Command {
	return &metapb.Command{Body: &metapb.Command_SegmentStart{SegmentStart: &metapb.SegmentStart{Segment: s.toProto()}}}
}

func finishCmd(s *RemoteSegment) *metapb.Command {
	return &metapb.Command{Body: &metapb.Command_SegmentFinish{SegmentFinish: &metapb.SegmentFinish{Segment: s.toProto()}}}
}

func segment(topic, id string, base, next int64, epoch int32) *RemoteSegment {
	return &RemoteSegment{
		ID: uid(id), TopicID: uid(topic), Base: base, Next: next, FirstTimestamp: base * 10, MaxTimestamp: next * 10, LeaderEpoch: epoch,
		ObjectBytes: (next - base) * 110, LogBytes: (next - base) * 100, IndexOff: (next - base) * 100, IndexLen: 99, Location: "dir:///tier",
		Broker: 1, Epochs: []EpochStart{{Epoch: epoch, Start: base}},
	}
}

// segments lists all rows of a partition, by state and place.
func segments(t tester, f *fsm, topic protocol.UUID, partition int32) []RemoteSegment {
	t.Helper()
	var out []RemoteSegment
	for _, ns := range []byte{nsStarted, nsFinished, nsDeleting} {
		err := eachRow(f.handle.db, partKey(ns, topic, partition), func(key, value []byte) error {
			seg, loc, err := decodeSegment(value, topic, partition)
			if err == nil {
				seg.Location, err = f.location(loc)
			}
			out = append(out, seg)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].State < out[j].State })
	return out
}

func rowCount(t tester, r pebble.Reader, prefix ...byte) (n int) {
	t.Helper()
	if err := eachRow(r, prefix, func(_, _ []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func osFS() vfs.FS { return vfs.Default }
