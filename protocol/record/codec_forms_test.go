package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"

	"varve/protocol"
)

func TestSnappyForms(t *testing.T) {
	data := []byte(strings.Repeat("snappy ", 9000))
	framed := deflate(t, Snappy, DefaultLevel, data)
	if !bytes.HasPrefix(framed, xerialHeader) {
		t.Fatal("what we write is not framed")
	}
	lower := bytes.Clone(framed)
	lower[11] = 0
	for _, c := range []struct {
		name string
		src  []byte
		want []byte
	}{
		{"raw", s2.EncodeSnappy(nil, data), data},
		{"framed", framed, data},
		{"two framed streams", append(bytes.Clone(framed), framed...), append(bytes.Clone(data), data...)},
		{"header only", xerialHeader, nil},
		{"nothing", nil, nil},
		{"empty block", append(bytes.Clone(xerialHeader), 0, 0, 0, 0), nil},
		{"version 0", lower, nil},
		{"half a header", framed[:12], nil},
		{"half a length", framed[:18], nil},
		{"half a block", framed[:30], nil},
		{"s2 repeat codes", s2.EncodeBetter(nil, data), nil},
	} {
		got, err := inflate(Snappy, c.src, MaxDecompressedBytes)
		good := c.want != nil || c.name == "header only" || c.name == "nothing" || c.name == "empty block"
		if good && (err != nil || !bytes.Equal(got, c.want)) || !good && !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
		}
	}
}

// TestPlainSnappyAcceptsWhatSnappyWrites feeds the tag walk blocks of all kinds.
func TestPlainSnappyAcceptsWhatSnappyWrites(t *testing.T) {
	for i, data := range samples() {
		for _, block := range [][]byte{s2.EncodeSnappy(nil, data), s2.EncodeSnappyBetter(nil, data), s2.EncodeSnappyBest(nil, data)} {
			_, n := binary.Uvarint(block)
			if !plainSnappy(block[n:]) {
				t.Errorf("sample %d is refused", i)
			}
		}
	}
}

// TestLZ4Frames holds the frame walk to Kafka's reader: the first frame counts,
// blocks are independent.
func TestLZ4Frames(t *testing.T) {
	data := []byte(strings.Repeat("lz4 frame ", 30_000))
	frame := func(opts ...lz4.Option) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(opts...); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	plain := frame()
	dependent := bytes.Clone(plain)
	dependent[4] &^= 0x20
	version2 := bytes.Clone(plain)
	version2[4] |= 0x80
	dictionary := bytes.Clone(plain)
	dictionary[4] |= 0x01
	for _, c := range []struct {
		name string
		src  []byte
		ok   bool
	}{
		{"plain", plain, true},
		{"block checksums", frame(lz4.BlockChecksumOption(true), lz4.BlockSizeOption(lz4.Block64Kb)), true},
		{"content size", frame(lz4.SizeOption(uint64(len(data)))), true},
		{"no checksum", frame(lz4.ChecksumOption(false)), true},
		{"bytes after the frame", append(bytes.Clone(plain), "more"...), true},
		{"a second frame", append(bytes.Clone(plain), plain...), true},
		{"dependent blocks", dependent, false},
		{"another version", version2, false},
		{"a dictionary", dictionary, false},
		{"no end mark", plain[:len(plain)-8], false},
		{"no content checksum", plain[:len(plain)-4], false},
		{"legacy", frame(lz4.LegacyOption(true)), false},
		{"skippable first", append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, plain...), false},
		{"nothing", nil, false},
	} {
		got, err := inflate(LZ4, c.src, MaxDecompressedBytes)
		if c.ok && (err != nil || !bytes.Equal(got, data)) || !c.ok && !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
		}
	}
}
