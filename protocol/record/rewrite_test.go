package record

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"varve/protocol"
)

func TestRewrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		bl := NewBuilder(opts)
		want := drawRecords(t, opts.BaseOffset, true)
		for i := range want {
			if err := bl.Append(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		b, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(b)
		codec := rapid.SampledFrom(allCodecs).Draw(t, "to")
		now := rapid.SampledFrom([]int64{-1, 0, 1234}).Draw(t, "now")
		out, err := Rewrite(b, codec, rapid.SampledFrom([]int{DefaultLevel, 1}).Draw(t, "level to"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, before) || &b[0] == &out[0] {
			t.Fatal("the source was touched")
		}
		if now >= 0 {
			out.SetLogAppendTime(now)
			for i := range want {
				want[i].Timestamp = now
			}
		}
		if _, err := out.Validate(Limits{}); err != nil {
			t.Fatal(err)
		}
		if got := records(t, out); !slices.EqualFunc(got, want, sameRecord) || out.Codec() != codec || out.LogAppendTime() != (now >= 0) {
			t.Fatalf("%v\n got %+v\nwant %+v", out, got, want)
		}
		same := []int{baseOffsetAt, leaderEpochAt, lastOffsetDeltaAt, baseTimestampAt, producerIDAt, baseSequenceAt, countAt}
		for _, at := range same {
			if out.i32(at) != b.i32(at) {
				t.Fatalf("the header changed at %d", at)
			}
		}
	})
}

func TestRewriteNeverBlessesBrokenBytes(t *testing.T) {
	for _, codec := range allCodecs {
		b := built(t, Options{Codec: codec}, 10)
		b[len(b)-3] ^= 1
		if _, err := Rewrite(b, Gzip, DefaultLevel); !errors.Is(err, protocol.CorruptMessage) {
			t.Errorf("%s: %v", codec, err)
		}
		b.setCRC()
		if codec == None {
			continue
		}
		cut := sealed(b, b[HeaderLen:HeaderLen+10])
		if _, err := Rewrite(cut, None, DefaultLevel); !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s cut: %v", codec, err)
		}
	}
}

func TestEndTxnMarker(t *testing.T) {
	for _, commit := range []bool{true, false} {
		m := EndTxnMarker{BaseOffset: 50, LeaderEpoch: 3, TimestampMs: 99, ProducerID: 7, ProducerEpoch: 2, CoordinatorEpoch: 11, Commit: commit}
		b := m.Batch()
		if _, err := b.Validate(Limits{}); err != nil {
			t.Fatal(err)
		}
		if b.LastOffset() != 50 || !b.Control() || !b.Transactional() || b.ProducerID() != 7 || b.ProducerEpoch() != 2 || b.BaseSequence() != NoSequence || b.MaxTimestamp() != 99 || b.LeaderEpoch() != 3 {
			t.Error(b)
		}
		want := Control{Abort, 11}
		if commit {
			want.Type = Commit
		}
		if got, err := b.ControlRecord(); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		rs := consumed(t, b)
		if len(rs) != 1 || !rs[0].Attrs.IsControl() || !rs[0].Attrs.IsTransactional() || rs[0].ProducerID != 7 {
			t.Errorf("kgo reads %+v", rs)
		}
	}
}

func TestParseControl(t *testing.T) {
	for _, c := range []struct {
		name       string
		key, value string
		ok         bool
		want       Control
	}{
		{"commit", "\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x05", true, Control{Commit, 5}},
		{"later versions", "\x00\x01\x00\x00more", "\x00\x01\x00\x00\x00\x05more", true, Control{Abort, 5}},
		{"leader change", "\x00\x00\x00\x02", "", true, Control{Type: 2}},
		{"unknown", "\x00\x00\x7f\xff", "", true, Control{Type: 0x7fff}},
		{"short key", "\x00\x00\x00", "", false, Control{}},
		{"negative key version", "\xff\xff\x00\x01", "\x00\x00\x00\x00\x00\x05", false, Control{}},
		{"short value", "\x00\x00\x00\x01", "\x00\x00\x00\x00\x00", false, Control{}},
		{"negative value version", "\x00\x00\x00\x01", "\xff\xff\x00\x00\x00\x05", false, Control{}},
	} {
		got, err := ParseControl(&Record{Key: []byte(c.key), Value: []byte(c.value)})
		if c.ok && (err != nil || got != c.want) || !c.ok && !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := built(t, Options{}, 1).ControlRecord(); !errors.Is(err, protocol.InvalidRecord) {
		t.Error(err)
	}
	empty := changed(sealed(built(t, Options{Control: true}, 1), nil), put32(countAt, 0))
	if _, err := empty.ControlRecord(); !errors.Is(err, protocol.InvalidRecord) {
		t.Error(err)
	}
}
