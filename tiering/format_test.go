package tiering

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/tierpb"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares b with a file in testdata byte for byte.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Fatalf("%s: %d bytes differ from the golden %d: version 1 must stay readable for ever, so a change of bytes is a new version", name, len(b), len(want))
	}
}

// testBatch builds a batch of count records with values of size bytes.
func testBatch(t testing.TB, base int64, count, size int, ts int64) record.Batch {
	t.Helper()
	bl := record.NewBuilder(record.Options{BaseOffset: base, LeaderEpoch: 3, Producer: &record.Producer{ID: 4000 + base%7, Epoch: 1}})
	for i := range count {
		value := bytes.Repeat([]byte{byte('a' + (int(base)+i)%26)}, size)
		if err := bl.Add(ts+int64(i), []byte("k"), value); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return append(record.Batch(nil), b...)
}

// testSource makes a segment [100, 100+batches*3) with sparse indexes as a log does.
func testSource(t testing.TB, batches, size int) (SegmentSource, []byte) {
	t.Helper()
	var log, index, times []byte
	const base = 100
	next := int64(base)
	maxTS := int64(0)
	for i := range batches {
		if i%2 == 1 {
			index = binary.BigEndian.AppendUint32(index, uint32(next-base))
			index = binary.BigEndian.AppendUint32(index, uint32(len(log)))
			times = binary.BigEndian.AppendUint64(times, uint64(maxTS))
			times = binary.BigEndian.AppendUint32(times, uint32(next-1-base))
		}
		ts := int64(1_700_000_000_000 + i*10)
		log = append(log, testBatch(t, next, 3, size, ts)...)
		next, maxTS = next+3, ts+2
	}
	topic, id := protocol.UUID{1, 2, 3}, protocol.UUID{9, 8, 7}
	return SegmentSource{
		Log: bytes.NewReader(log), LogBytes: int64(len(log)), OffsetIndex: index, TimeIndex: times,
		TxnIndex: bytes.Repeat([]byte{0}, txnEntryBytes), ProducerSnapshot: []byte("snapshot"),
		Epochs: []commitlog.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 3, Start: 90}},
		Footer: &tierpb.Footer{
			ClusterId: "cluster", Topic: "orders", TopicId: topic[:], Partition: 7, SegmentId: id[:], Base: base, Next: next, LogStart: 20,
			FirstTimestamp: 1_700_000_000_000, MaxTimestamp: maxTS, LeaderEpoch: 3,
			Configs: sortedConfigs(map[string]string{"retention.ms": "-1", "cleanup.policy": "delete"}),
			Writer:  &tierpb.Writer{BrokerId: 1, WrittenMs: 1_700_000_001_000},
		},
	}, log
}

func encodeTest(t testing.TB, src SegmentSource) (*EncodedSegment, []byte) {
	t.Helper()
	e, err := EncodeSegment(src)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, e.Size)
	if n, err := e.ReadAt(b, 0); n != len(b) || err != nil {
		t.Fatalf("read %d of %d: %v", n, len(b), err)
	}
	return e, b
}

func TestSegmentGolden(t *testing.T) {
	src, log := testSource(t, 5, 20)
	e, b := encodeTest(t, src)
	golden(t, "segment-v1.seg", b)
	if crc32.Checksum(b, castagnoli) != e.CRC32C {
		t.Fatal("CRC32C of the whole object")
	}
	s, err := OpenSegment(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := s.WriteLog(&got); err != nil || !bytes.Equal(got.Bytes(), log) {
		t.Fatalf("log differs: %v", err)
	}
	f := s.Footer
	if f.RecordCount != 15 || f.BatchCount != 5 || f.MaxProducerId != 4005 || f.Topic != "orders" || len(f.Sections) != 7 {
		t.Fatalf("footer %v", f)
	}
	if !bytes.Equal(s.OffsetIndex, src.OffsetIndex) || !bytes.Equal(s.TimeIndex, src.TimeIndex) || !bytes.Equal(s.TxnIndex, src.TxnIndex) ||
		string(s.ProducerSnapshot) != "snapshot" || len(s.Epochs) != 2 || s.Epochs[1] != src.Epochs[1] {
		t.Fatal("a section differs")
	}
}

func TestSegmentManyChunks(t *testing.T) {
	src, log := testSource(t, 300, 1000)
	e, b := encodeTest(t, src)
	s, err := OpenSegment(bytes.NewReader(b), e.Size)
	if err != nil {
		t.Fatal(err)
	}
	if want := (len(log) + chunkBytes - 1) / chunkBytes; len(s.Chunks) != want || want < 4 {
		t.Fatalf("%d chunks, want %d", len(s.Chunks), want)
	}
	// A PUT may read in any pieces, across the border of log and tail too.
	part := make([]byte, 777)
	for off := int64(0); off < e.Size; off += 777 {
		n, _ := e.ReadAt(part, off)
		if !bytes.Equal(part[:n], b[off:off+int64(n)]) {
			t.Fatalf("ReadAt(%d) differs", off)
		}
	}
	for off := s.Footer.Base; off < s.Footer.Next; off++ {
		pos := s.position(off)
		h := record.Batch(log[pos:])
		if h.BaseOffset() > off {
			t.Fatalf("position of %d starts at %d", off, h.BaseOffset())
		}
	}
}

// TestSegmentDamage flips every byte of a small object: no flip goes unnoticed.
func TestSegmentDamage(t *testing.T) {
	src, _ := testSource(t, 2, 10)
	_, good := encodeTest(t, src)
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x40
		s, err := OpenSegment(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			err = s.WriteLog(new(bytes.Buffer))
		}
		var bad *protocol.CorruptionError
		var newer *FormatError
		if !errors.As(err, &bad) && !errors.As(err, &newer) {
			t.Fatalf("byte %d of %d flipped: %v", i, len(good), err)
		}
	}
	for n := range good {
		if _, err := OpenSegment(bytes.NewReader(good[:n]), int64(n)); err == nil {
			t.Fatalf("cut to %d bytes: no error", n)
		}
	}
}

// resealed returns an object whose footer was changed, with valid checksums.
func resealed(t *testing.T, change func(*tierpb.Footer), version uint16) []byte {
	src, log := testSource(t, 2, 10)
	e, b := encodeTest(t, src)
	footerOff := e.Size - trailerBytes - int64(proto.Size(e.Footer))
	change(e.Footer)
	e.tail = bytes.Clone(b[e.IndexOff:footerOff])
	if _, err := e.seal(crc32.Checksum(log, castagnoli)); err != nil {
		t.Fatal(err)
	}
	out := append(bytes.Clone(log), e.tail...)
	binary.BigEndian.PutUint16(out[len(out)-12:], version)
	return out
}

func TestSegmentRefusesUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*tierpb.Footer)
		version uint16
		want    string
	}{
		"version":   {func(*tierpb.Footer) {}, 2, "version 2"},
		"transform": {func(f *tierpb.Footer) { f.Transform = 1 }, 1, "transform 1"},
		"feature":   {func(f *tierpb.Footer) { f.RequiredFeatures = 1 << 5 }, 1, "required features 0x20"},
	} {
		t.Run(name, func(t *testing.T) {
			b := resealed(t, c.change, c.version)
			_, err := OpenSegment(bytes.NewReader(b), int64(len(b)))
			var newer *FormatError
			if !errors.As(err, &newer) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "upgrade") {
				t.Fatalf("got %v", err)
			}
		})
	}
	b := resealed(t, func(f *tierpb.Footer) { f.Sections = append(f.Sections, &tierpb.Section{Kind: 99}) }, 1)
	if _, err := OpenSegment(bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatalf("an additional section that is not required must not matter: %v", err)
	}
}

// TestEncodeRefusesDamage: what is not what was appended never reaches the tier.
func TestEncodeRefusesDamage(t *testing.T) {
	for name, damage := range map[string]func(*SegmentSource, []byte){
		"payload":    func(_ *SegmentSource, b []byte) { b[len(b)-1] ^= 1 },
		"magic":      func(_ *SegmentSource, b []byte) { b[16] = 1 },
		"length":     func(_ *SegmentSource, b []byte) { binary.BigEndian.PutUint32(b[8:], 5) },
		"too long":   func(_ *SegmentSource, b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<30) },
		"order":      func(_ *SegmentSource, b []byte) { binary.BigEndian.PutUint64(b, 1<<40) },
		"past next":  func(s *SegmentSource, _ []byte) { s.Footer.Next-- },
		"below base": func(s *SegmentSource, _ []byte) { s.Footer.Base += 10 },
		"cut short":  func(s *SegmentSource, _ []byte) { s.LogBytes -= 3 },
		"file short": func(s *SegmentSource, _ []byte) { s.LogBytes += 3 },
	} {
		t.Run(name, func(t *testing.T) {
			src, log := testSource(t, 4, 30)
			damage(&src, log)
			src.Log = bytes.NewReader(log)
			_, err := EncodeSegment(src)
			var bad *protocol.CorruptionError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func FuzzOpenSegment(f *testing.F) {
	src, _ := testSource(f, 3, 10)
	_, good := encodeTest(f, src)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte("VARVESEG"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := OpenSegment(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		_ = s.WriteLog(new(bytes.Buffer))
		for _, off := range []int64{0, s.Footer.Base, s.Footer.Next, 1 << 62} {
			if p := s.position(off); p < 0 || (p >= s.Footer.LogBytes && p != 0) {
				t.Fatalf("position %d of a log of %d", p, s.Footer.LogBytes)
			}
			s.positionOfTime(off)
		}
		appendAborted(nil, s.TxnIndex, 0, 1<<62)
	})
}

// FuzzIndexTail reaches what lies behind the checksums: sections of any content.
func FuzzIndexTail(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{}, []byte{0})
	f.Fuzz(func(t *testing.T, index, times, txns []byte) {
		x := &SegmentIndex{Footer: &tierpb.Footer{Base: 5, Next: 50, LogBytes: 4096}, OffsetIndex: index, TimeIndex: times, TxnIndex: txns}
		for _, v := range []int64{-1, 0, 5, 49, 1 << 62} {
			if p := x.position(v); p < 0 || p >= 4096 {
				t.Fatalf("position %d", p)
			}
			if p := x.positionOfTime(v); p < 0 || p >= 4096 {
				t.Fatalf("position of time %d", p)
			}
		}
		appendAborted(nil, txns, 0, 50)
		_, _ = parseEpochs("x", index)
		_, _ = parseChunks("x", times, 4096)
	})
}
