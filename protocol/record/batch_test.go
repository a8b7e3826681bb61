package record

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"varve/protocol"
)

func TestAccessors(t *testing.T) {
	b := built(t, Options{BaseOffset: 100, LeaderEpoch: 5, Codec: Snappy, Transactional: true, Producer: &Producer{9, 2, math.MaxInt32 - 1}}, 4)
	for name, ok := range map[string]bool{
		"offsets":  b.BaseOffset() == 100 && b.LastOffsetDelta() == 3 && b.LastOffset() == 103 && b.NextOffset() == 104,
		"epoch":    b.LeaderEpoch() == 5,
		"magic":    b.Magic() == 2,
		"codec":    b.Codec() == Snappy && b.Codec().String() == "snappy",
		"bits":     b.Transactional() && !b.Control() && !b.LogAppendTime() && !b.HasDeleteHorizon() && b.Attributes() == 0x12,
		"times":    b.BaseTimestamp() == 1000 && b.MaxTimestamp() == 1003,
		"producer": b.ProducerID() == 9 && b.ProducerEpoch() == 2 && b.BaseSequence() == math.MaxInt32-1 && b.LastSequence() == 1,
		"sizes":    b.Count() == 4 && b.Size() == len(b),
		"crc":      b.CheckCRC() == nil && b.CRC() == b.computeCRC(),
		"string":   b.String() != "",
	} {
		if !ok {
			t.Error(name)
		}
	}
	plain := built(t, Options{}, 1)
	if plain.ProducerID() != NoProducerID || plain.ProducerEpoch() != NoProducerEpoch || plain.LastSequence() != NoSequence {
		t.Error("a batch without producer has one")
	}
}

func TestSetters(t *testing.T) {
	b := built(t, Options{}, 3)
	crc := b.CRC()
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(-1)
	if b.BaseOffset() != 1<<40 || b.LeaderEpoch() != -1 || b.CRC() != crc || b.CheckCRC() != nil {
		t.Error("base offset and leader epoch are outside of the CRC")
	}
	b.SetLogAppendTime(77)
	if !b.LogAppendTime() || b.MaxTimestamp() != 77 || b.CheckCRC() != nil {
		t.Error("log append time")
	}
	for _, r := range records(t, b) {
		if r.Timestamp != 77 {
			t.Errorf("record at %d has time %d", r.Offset, r.Timestamp)
		}
	}
	b.SetMaxTimestamp(78)
	if b.MaxTimestamp() != 78 || b.CheckCRC() != nil {
		t.Error("max timestamp")
	}
}

func TestCRCSeesEveryBit(t *testing.T) {
	b := built(t, Options{}, 2)
	for i := crcAt; i < len(b); i++ {
		c := slices.Clone(b)
		c[i] ^= 0x10
		if err := c.CheckCRC(); !errors.Is(err, protocol.CorruptMessage) {
			t.Fatalf("a flip in byte %d gives %v", i, err)
		}
	}
}

func TestNext(t *testing.T) {
	one, two := built(t, Options{}, 3), built(t, Options{BaseOffset: 3, Codec: Gzip}, 5)
	buf := slices.Concat(one, two)
	b, rest, err := Next(buf)
	if err != nil || !slices.Equal(b, one) || cap(b) != len(b) {
		t.Fatalf("%v, %v", b, err)
	}
	b, rest, err = Next(rest)
	if err != nil || !slices.Equal(b, two) {
		t.Fatalf("%v, %v", b, err)
	}
	if _, _, err = Next(rest); err != io.EOF {
		t.Error(err)
	}
	for n := 1; n < len(one); n++ {
		if _, _, err := Next(one[:n]); err != io.ErrUnexpectedEOF {
			t.Fatalf("%d bytes give %v", n, err)
		}
	}
	if n, err := PeekSize(one[:PeekLen]); err != nil || n != len(one) {
		t.Error(n, err)
	}
}

func TestNextRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(Batch)
		code   protocol.ErrorCode
	}{
		{"magic 0", func(b Batch) { b[magicAt] = 0 }, protocol.UnsupportedForMessageFormat},
		{"magic 1", func(b Batch) { b[magicAt] = 1 }, protocol.UnsupportedForMessageFormat},
		{"magic 3", func(b Batch) { b[magicAt] = 3 }, protocol.CorruptMessage},
		{"short", func(b Batch) { binary.BigEndian.PutUint32(b[lengthAt:], HeaderLen-lengthOverhead-1) }, protocol.CorruptMessage},
		{"negative", func(b Batch) { binary.BigEndian.PutUint32(b[lengthAt:], 1<<31) }, protocol.CorruptMessage},
		{"huge", func(b Batch) { binary.BigEndian.PutUint32(b[lengthAt:], math.MaxInt32) }, protocol.CorruptMessage},
	} {
		b := changed(built(t, Options{}, 1), c.change)
		if _, _, err := Next(b); !errors.Is(err, c.code) {
			t.Errorf("%s gives %v", c.name, err)
		}
	}
}

func TestSequences(t *testing.T) {
	for _, c := range [][3]int32{{0, 0, 0}, {5, 6, 11}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2}, {math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1}} {
		if got := AddSequence(c[0], c[1]); got != c[2] {
			t.Errorf("%d + %d = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestCodecNames(t *testing.T) {
	for _, c := range allCodecs {
		if got, ok := ParseCodec(c.String()); !ok || got != c {
			t.Errorf("%s is read as %s", c, got)
		}
	}
	if got, ok := ParseCodec("uncompressed"); !ok || got != None {
		t.Error("uncompressed")
	}
	if _, ok := ParseCodec("producer"); ok || Codec(7).String() != "unknown" || Codec(-1).String() != "unknown" {
		t.Error("unknown names")
	}
}
