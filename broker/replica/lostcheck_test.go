package replica

import (
	"fmt"
	"testing"

	"varve/broker/commitlog"
	"varve/metastore"
)

// TestLogStartCheckpointIsLost: without its checkpoint a log seems to begin with its first file. What has settled below is
// readable all the same, and nothing tells the tier that the log starts higher.
func TestLogStartCheckpointIsLost(t *testing.T) {
	for _, settled := range []int64{6, 3} {
		t.Run(fmt.Sprint(settled), func(t *testing.T) {
			b := newBook(t)
			meta := &stillMeta{img: b.s.Image()}
			o := nodeOptions{fs: commitlog.NewMemFS(), meta: meta, control: &bookControl{b: b, meta: meta}, tier: newMemTier()}
			id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
			meta.show(b.s.Image())
			n := startNode(t, o)
			n.awaitState("a", 0, StateLeader)
			for i := range 6 {
				n.mustProduce("a", fmt.Sprint(i))
			}
			n.settle("a", id, 6)
			n.mustProduce("a", "6")
			n.stop()
			if err := o.fs.Remove("/logs/log-start-offset-checkpoint"); err != nil {
				t.Fatal(err)
			}
			meta.setTier(id, metastore.TierState{LogStart: 2, End: settled, Epochs: []metastore.EpochStart{{Epoch: 0}}})
			n = startNode(t, o)
			defer n.stop()
			b.lead(id, 0, self)
			meta.show(b.s.Image())
			n.awaitEpoch("a", 0, 1)
			want := int64(2)
			if settled < 6 {
				want = 6 // offsets 3 to 5 are nowhere: the log cannot begin below them
			}
			if d, _ := n.m.Describe("a", 0); d.LogStart != want || d.LocalStart != 6 || d.End != 7 {
				t.Fatalf("%+v", d)
			}
		})
	}
}
