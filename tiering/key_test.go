package tiering

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"varve/protocol"
)

func drawKey(t *rapid.T) SegmentKey {
	id := func(label string) (u protocol.UUID) {
		copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
		return u
	}
	base := rapid.Int64Range(0, math.MaxInt64-1).Draw(t, "base")
	return SegmentKey{
		Prefix:    rapid.SampledFrom([]string{"", "p", "deep/er"}).Draw(t, "prefix"),
		ClusterID: "Fk1sJ3-_x", TopicID: id("topic"), ID: id("id"),
		Partition:    rapid.Int32Range(0, math.MaxInt32).Draw(t, "partition"),
		Base:         base,
		Next:         rapid.Int64Range(base+1, math.MaxInt64).Draw(t, "next"),
		MaxTimestamp: rapid.Int64Range(-1, math.MaxInt64).Draw(t, "ts"),
		LeaderEpoch:  rapid.Int32Range(0, math.MaxInt32).Draw(t, "epoch"),
		Generation:   rapid.Uint32().Draw(t, "generation"),
	}
}

func TestKeyRoundTripAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawKey(t)
		got, err := ParseSegmentKey(a.String())
		if err != nil || got != a {
			t.Fatalf("%+v became %+v: %v", a, got, err)
		}
		b := drawKey(t)
		b.Prefix, b.TopicID, b.Partition = a.Prefix, a.TopicID, a.Partition
		if len(a.String()) != len(b.String()) {
			t.Fatal("widths are not fixed")
		}
		if a.Base != b.Base && (a.Base < b.Base) != (a.String() < b.String()) {
			t.Fatalf("order of %s and %s", a, b)
		}
	})
}

func TestKeyGolden(t *testing.T) {
	k := SegmentKey{
		Prefix: "tier", ClusterID: "c", TopicID: protocol.UUID{1}, Partition: 7, Base: 100, Next: 200,
		MaxTimestamp: 1_700_000_000_000, LeaderEpoch: 4, Generation: 1, ID: protocol.UUID{2},
	}
	golden(t, "segment-key-v1.txt", []byte(k.String()+"\n"+journalKey("tier", "c", 42)+"\n"+ownerKey("", "c")+"\n"))
}

func TestKeyRefuses(t *testing.T) {
	good := SegmentKey{ClusterID: "c", TopicID: protocol.UUID{1}, Base: 1, Next: 2, ID: protocol.UUID{2}}.String()
	for _, key := range []string{
		"", "/", "a/b/c/d/e.seg", good[1:], good + "x", strings.Replace(good, ".seg", ".sag", 1), "/" + good,
		strings.Replace(good, "-0000000000-0000000000-", "-0000000000-9999999999-", 1), // generation above 32 bits
		strings.Replace(good, "00000000000000000002-", "00000000000000000001-", 1),     // next = base
	} {
		if k, err := ParseSegmentKey(key); err == nil {
			t.Errorf("%q was read as %+v", key, k)
		}
	}
	if n, err := ParseJournalKey(journalKey("p", "c", math.MaxUint64)); n != math.MaxUint64 || err != nil {
		t.Fatalf("journal key: %d %v", n, err)
	}
	for _, key := range []string{"", "p/c/meta/journal/", "p/c/meta/journal/0000000000000000000x"} {
		if _, err := ParseJournalKey(key); err == nil {
			t.Errorf("%q was read as a journal key", key)
		}
	}
}

func FuzzParseSegmentKey(f *testing.F) {
	f.Add(SegmentKey{ClusterID: "c", TopicID: protocol.UUID{1}, Base: 1, Next: 2, ID: protocol.UUID{2}}.String())
	f.Fuzz(func(t *testing.T, key string) {
		if k, err := ParseSegmentKey(key); err == nil && k.String() != key {
			t.Fatalf("%q is not canonical", key)
		}
		_, _ = ParseJournalKey(key)
	})
}
