package tiering

import (
	"slices"
	"testing"

	"varve/broker/commitlog"
	"varve/metastore"
)

// seg is a segment in a picture of a partition: offsets, bytes, newest record's time.
type seg struct{ base, next, bytes, ts int64 }

func TestRetentionPlan(t *testing.T) {
	const now = 1_000_000
	remote := []seg{{0, 10, 100, 100}, {10, 20, 100, 200}, {20, 30, 100, 300}}
	local := []seg{{20, 30, 100, 300}, {30, 40, 100, 400}, {40, 50, 100, 500}, {50, 55, 10, 600}}
	for name, c := range map[string]struct {
		start      int64
		ms, bytes  int64
		remote     []seg
		local      []seg
		lastStable int64
		want       int64
		ids        int
	}{
		"no limits":                        {0, -1, -1, remote, local, 55, 0, 0},
		"all live":                         {0, now, 10_000, remote, local, 55, 0, 0},
		"by time":                          {0, now - 250, -1, remote, local, 55, 20, 2},
		"by size, each byte once":          {0, -1, 400, remote, local, 55, 10, 1}, // 300 in the tier + 210 not
		"size never below the limit":       {0, -1, 411, remote, local, 55, 0, 0},
		"size exactly":                     {0, -1, 410, remote, local, 55, 10, 1},
		"stops at the first live one":      {0, now - 250, -1, []seg{{0, 10, 100, 300}, {10, 20, 100, 100}}, nil, 20, 0, 0},
		"below log start goes anyway":      {20, -1, -1, remote, local, 55, 20, 2},
		"log start inside a segment stays": {25, -1, -1, remote, local, 55, 25, 2},
		"below log start is not size":      {20, -1, 310, remote, local, 55, 20, 2},
		"into the local log by time":       {0, now - 450, -1, remote, local, 55, 40, 3},
		"into the local log by size":       {0, -1, 110, remote, local, 55, 40, 3},
		"not past the last stable offset":  {0, 0, -1, remote, local, 45, 40, 3},
		"never the active one":             {0, 0, -1, remote, local, 55, 50, 3},
		"everything":                       {0, -1, 0, remote, local, 55, 50, 3},
		"straddling by size":               {0, -1, 1, remote, []seg{{25, 35, 100, 1}, {35, 40, 1, 1}}, 40, 35, 3},
		"straddling, needed for the limit": {0, -1, 2, remote, []seg{{25, 35, 100, 1}, {35, 40, 1, 1}}, 40, 20, 2},
		"local below log start is no size": {40, -1, 110, nil, []seg{{20, 30, 100, 1}, {30, 40, 100, 1}, {40, 50, 100, 1}, {50, 55, 10, 1}}, 55, 40, 0},
		"straddling by time":               {0, 0, -1, remote, []seg{{25, 35, 100, 1}, {35, 40, 1, 1}}, 40, 35, 3},
		"nothing in the tier":              {0, now - 450, -1, nil, []seg{{0, 10, 5, 400}, {10, 20, 5, 500}, {20, 21, 5, 1}}, 21, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st := metastore.TierState{LogStart: c.start}
			for _, s := range c.remote {
				st.End, st.Bytes = s.next, st.Bytes+s.bytes
			}
			segs := localSegs(c.local)
			plan := newRetentionPlan(st, segs, TierConfig{RetentionMs: c.ms, RetentionBytes: c.bytes}, now)
			for _, s := range c.remote {
				if !plan.remote(metastore.RemoteSegment{Base: s.base, Next: s.next, LogBytes: s.bytes, MaxTimestamp: s.ts}) {
					break
				}
			}
			plan.local(segs, c.lastStable)
			if plan.start != c.want || len(plan.ids) != c.ids {
				t.Fatalf("log start %d, %d rows; want %d, %d", plan.start, len(plan.ids), c.want, c.ids)
			}
		})
	}
}

func TestRetentionPlanIsBounded(t *testing.T) {
	plan := newRetentionPlan(metastore.TierState{End: 1 << 40}, nil, TierConfig{RetentionMs: 0, RetentionBytes: -1}, 1000)
	n := int64(0)
	for ; plan.remote(metastore.RemoteSegment{Base: n, Next: n + 1}); n++ {
		if n > 2*metastore.MaxSegmentIDs {
			t.Fatal("no end")
		}
	}
	if plan.start != metastore.MaxSegmentIDs || len(plan.ids) != metastore.MaxSegmentIDs {
		t.Fatalf("log start %d with %d rows", plan.start, len(plan.ids))
	}
}

func localSegs(in []seg) (out []commitlog.SegmentInfo) {
	for i, s := range in {
		out = append(out, commitlog.SegmentInfo{Base: s.base, Next: s.next, SizeBytes: s.bytes, MaxTimestamp: s.ts, Sealed: i < len(in)-1})
	}
	return out
}

func TestLocalCut(t *testing.T) {
	const now = 1000
	local := []seg{{0, 10, 100, 100}, {10, 20, 100, 200}, {20, 30, 100, 300}, {30, 35, 10, 400}}
	for name, c := range map[string]struct {
		start, end int64
		ms, bytes  int64
		want       int64
	}{
		"no limits":               {0, 30, -1, -1, 0},
		"by time":                 {0, 30, 750, -1, 20},
		"by size":                 {0, 30, -1, 110, 20},
		"size never below":        {0, 30, -1, 111, 10},
		"only what is in tier":    {0, 10, 0, 0, 10},
		"a part in tier is not":   {0, 25, 0, 0, 20},
		"nothing in tier":         {0, 0, 0, 0, 0},
		"below log start":         {20, 0, -1, -1, 20},
		"active never":            {0, 35, 0, 0, 30},
		"stops at the first live": {0, 30, 850, -1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			got := localCut(localSegs(local), metastore.TierState{LogStart: c.start, End: c.end}, c.ms, c.bytes, now)
			if got != c.want {
				t.Fatalf("cut at %d, want %d", got, c.want)
			}
		})
	}
}

func TestLineage(t *testing.T) {
	epochs := []commitlog.EpochStart{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 10}, {Epoch: 4, Start: 20}, {Epoch: 9, Start: 30}}
	for _, c := range []struct {
		base, next int64
		want       []int32
	}{{0, 5, []int32{1}}, {0, 10, []int32{1}}, {0, 11, []int32{1, 3}}, {10, 20, []int32{3}}, {15, 25, []int32{3, 4}}, {35, 50, []int32{9}}, {0, 50, []int32{1, 3, 4, 9}}} {
		var got []int32
		for _, e := range lineage(epochs, c.base, c.next) {
			got = append(got, e.Epoch)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("[%d, %d): epochs %v, want %v", c.base, c.next, got, c.want)
		}
	}
}
