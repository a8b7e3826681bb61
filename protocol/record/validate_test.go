package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"varve/protocol"
)

func put32(at int, v int32) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
}

func orAttributes(bits uint16) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint16(b[attributesAt:], uint16(b.Attributes())|bits) }
}

func TestValidateHeaderRules(t *testing.T) {
	idempotent := built(t, Options{Producer: &Producer{1, 0, 0}}, 3)
	plain := built(t, Options{}, 3)
	for _, c := range []struct {
		name   string
		batch  Batch
		client protocol.ErrorCode // as a producer's batch
		log    protocol.ErrorCode // as a batch out of a log
	}{
		{"good", plain, protocol.None, protocol.None},
		{"good idempotent", idempotent, protocol.None, protocol.None},
		{"codec 5", changed(plain, orAttributes(5)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"codec 7", changed(plain, orAttributes(7)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"count too small", changed(plain, put32(countAt, 2)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"count too large", changed(plain, put32(countAt, 4)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"count negative", changed(plain, put32(countAt, -1)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"last delta too large", changed(plain, put32(lastOffsetDeltaAt, 3)), protocol.InvalidRecord, protocol.None},
		{"last delta too small", changed(plain, put32(lastOffsetDeltaAt, 1)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"last delta negative", changed(plain, put32(lastOffsetDeltaAt, -1)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"last delta and count huge", changed(changed(plain, put32(lastOffsetDeltaAt, math.MaxInt32-1)), put32(countAt, math.MaxInt32)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"empty", changed(sealed(plain, nil), put32(countAt, 0)), protocol.InvalidRecord, protocol.None},
		{"empty with bytes", changed(plain, put32(countAt, 0)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"control", changed(plain, orAttributes(attrControl)), protocol.InvalidRecord, protocol.None},
		{"delete horizon", changed(plain, orAttributes(attrDeleteHorizon)), protocol.InvalidRecord, protocol.None},
		{"log append time", changed(plain, orAttributes(attrLogAppendTime)), protocol.InvalidTimestamp, protocol.None},
		{"unused bits", changed(plain, orAttributes(0xff00)), protocol.None, protocol.None},
		{"transactional without producer", changed(plain, orAttributes(attrTransactional)), protocol.InvalidRecord, protocol.None},
		{"producer without sequence", changed(idempotent, put32(baseSequenceAt, -1)), protocol.InvalidRecord, protocol.None},
		{"producer without epoch", changed(idempotent, func(b Batch) { b[producerEpochAt] = 0xff }), protocol.InvalidRecord, protocol.None},
		{"trailing byte", sealed(plain, append(slices.Clone(plain[HeaderLen:]), 0)), protocol.InvalidRecord, protocol.InvalidRecord},
		{"one byte short", sealed(plain, plain[HeaderLen:len(plain)-1]), protocol.InvalidRecord, protocol.InvalidRecord},
	} {
		_, err := c.batch.Validate(Limits{Client: true})
		if got := protocol.CodeOf(err); got != c.client {
			t.Errorf("%s from a client gives %s (%v)", c.name, got.Name(), err)
		}
		_, err = c.batch.Validate(Limits{})
		if got := protocol.CodeOf(err); got != c.log {
			t.Errorf("%s out of a log gives %s (%v)", c.name, got.Name(), err)
		}
	}
}

// rawRecord writes a record of these varints and bytes with its length.
func rawRecord(fields ...any) []byte {
	body := []byte{0}
	for _, f := range fields {
		switch f := f.(type) {
		case int:
			body = binary.AppendVarint(body, int64(f))
		case string:
			body = append(body, f...)
		}
	}
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// TestValidateRecordRules gives each malformed record alone, in every codec, and
// behind a record larger than the window.
func TestValidateRecordRules(t *testing.T) {
	padded := string([]byte{0x81, 0x80, 0x80, 0x80, 0x00}) // -1 in five bytes
	tooLong := string([]byte{0x81, 0x80, 0x80, 0x80, 0x80, 0x00})
	over32 := string([]byte{0xff, 0xff, 0xff, 0xff, 0x7f})
	over64 := string([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	for _, c := range []struct {
		name    string
		section []byte
		ok      bool
	}{
		{"smallest", rawRecord(0, 0, -1, -1, 0), true},
		{"key and value", rawRecord(5, 0, 1, "k", 2, "vv", 0), true},
		{"headers", rawRecord(0, 0, 0, 0, 2, 1, "h", 0, 0, -1), true},
		{"padded varint", rawRecord(0, 0, -1, padded, 0), true},
		{"too long varint", rawRecord(0, 0, -1, tooLong, 0), false},
		{"offset delta 1", rawRecord(0, 1, -1, -1, 0), false},
		{"offset delta -1", rawRecord(0, -1, -1, -1, 0), false},
		{"key of -2", rawRecord(0, 0, -2, -1, 0), false},
		{"value of -2", rawRecord(0, 0, -1, -2, 0), false},
		{"key beyond the record", rawRecord(0, 0, 9, "k", -1, 0), false},
		{"value beyond the record", rawRecord(0, 0, -1, 9, "k", 0), false},
		{"-1 headers", rawRecord(0, 0, -1, -1, -1), false},
		{"missing header", rawRecord(0, 0, -1, -1, 1), false},
		{"huge header count", rawRecord(0, 0, -1, -1, math.MaxInt32), false},
		{"null header key", rawRecord(0, 0, -1, -1, 1, -1, 0), false},
		{"header key beyond the record", rawRecord(0, 0, -1, -1, 1, 5, "h", 0), false},
		{"header value beyond the record", rawRecord(0, 0, -1, -1, 1, 1, "h", 5), false},
		{"header value of -2", rawRecord(0, 0, -1, -1, 1, 1, "h", -2), false},
		{"byte after headers", rawRecord(0, 0, -1, -1, 0, 0), false},
		{"no header count", rawRecord(0, 0, -1, -1), false},
		{"no value", rawRecord(0, 0, -1), false},
		{"no key", rawRecord(0, 0), false},
		{"no offset", rawRecord(0), false},
		{"attributes only", rawRecord(), false},
		{"no bytes", []byte{0}, false},
		{"negative size", []byte{1}, false},
		{"huge size", binary.AppendVarint(nil, math.MaxInt32), false},
		{"size of more than 32 bits", []byte{0xff, 0xff, 0xff, 0xff, 0x7f}, false},
		{"offset of more than 32 bits", rawRecord(0, over32, -1, -1, 0), false},
		{"timestamp of more than 64 bits", rawRecord(over64, 0, -1, -1, 0), false},
		{"unended varint", []byte{0x80}, false},
	} {
		head := built(t, Options{}, 1)
		for _, codec := range allCodecs {
			b := sealed(head, c.section)
			if codec != None {
				b, _ = compressed(b, codec, DefaultLevel)
				b.setCRC()
			}
			_, err := b.Validate(Limits{Client: true})
			if c.ok && err != nil || !c.ok && !errors.Is(err, protocol.InvalidRecord) {
				t.Errorf("%s in %s: %v", c.name, codec, err)
			}
			iterable := c.ok || strings.HasPrefix(c.name, "offset delta")
			if err := b.Each(func(*Record) error { return nil }); (err == nil) != iterable {
				t.Errorf("%s in %s: iterating gives %v", c.name, codec, err)
			}
		}
	}
}

// TestValidateLargeRecords holds the way that skims records larger than the
// window to the one that parses them whole.
func TestValidateLargeRecords(t *testing.T) {
	large := string(make([]byte, 3*windowBytes))
	n := len(large)
	for _, c := range []struct {
		name    string
		section []byte
		ok      bool
	}{
		{"value", rawRecord(7, 0, 1, "k", n, large, 0), true},
		{"key", rawRecord(7, 0, n, large, -1, 0), true},
		{"header", rawRecord(7, 0, -1, -1, 2, 1, "h", n, large, n, large, -1), true},
		{"value beyond the record", rawRecord(7, 0, 1, "k", n+1, large, 0), false},
		{"value of -2", rawRecord(7, 0, n, large, -2, 0), false},
		{"byte after headers", rawRecord(7, 0, 1, "k", n, large, 0, 0), false},
		{"no header count", rawRecord(7, 0, 1, "k", n, large), false},
		{"-1 headers", rawRecord(7, 0, 1, "k", n, large, -1), false},
		{"huge header count", rawRecord(7, 0, 1, "k", n, large, math.MaxInt32, 0), false},
		{"null header key", rawRecord(7, 0, -1, -1, 2, 1, "h", n, large, -1, -1), false},
		{"cut", rawRecord(7, 0, 1, "k", n, large, 0)[:n], false},
	} {
		head := built(t, Options{}, 1)
		for _, codec := range allCodecs {
			b := sealed(head, c.section)
			if codec != None {
				b, _ = compressed(b, codec, DefaultLevel)
				b.setCRC()
			}
			info, err := b.Validate(Limits{Client: true})
			if c.ok && err != nil || !c.ok && !errors.Is(err, protocol.InvalidRecord) {
				t.Errorf("%s in %s: %v", c.name, codec, err)
			}
			if c.ok && (info.MaxTimestamp != 1007 || info.UncompressedBytes != int64(len(c.section))) {
				t.Errorf("%s in %s: %+v", c.name, codec, info)
			}
		}
	}
}

func TestValidateInfo(t *testing.T) {
	for _, codec := range allCodecs {
		bl := NewBuilder(Options{BaseOffset: 50, Codec: codec})
		for _, r := range []Record{{Timestamp: 5, Key: []byte{}}, {Timestamp: 9}, {Timestamp: 9, Value: []byte("v")}, {Timestamp: -1}} {
			if err := bl.Add(r.Timestamp, r.Key, r.Value); err != nil {
				t.Fatal(err)
			}
		}
		size := int64(bl.Size() - HeaderLen)
		b, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		info, err := b.Validate(Limits{Client: true})
		if want := (Info{Count: 4, MaxTimestamp: 9, OffsetOfMaxTimestamp: 51, NullKeys: 3, UncompressedBytes: size}); err != nil || info != want {
			t.Errorf("%s: %+v, %v", codec, info, err)
		}
		b.SetLogAppendTime(3)
		info, err = b.Validate(Limits{})
		if err != nil || info.MaxTimestamp != 3 || info.OffsetOfMaxTimestamp != 50 {
			t.Errorf("%s: %+v, %v", codec, info, err)
		}
	}
}

func TestValidateRecordErrors(t *testing.T) {
	bl := NewBuilder(Options{})
	for i := range 300 {
		key := []byte("k")
		if i%2 == 1 {
			key = nil
		}
		if err := bl.Add(int64(i), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Batch()
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Validate(Limits{Client: true, RequireKeys: true})
	var refused *RecordsError
	if !errors.As(err, &refused) || protocol.CodeOf(err) != protocol.InvalidRecord || refused.Count != 150 || len(refused.Records) != maxRecordErrors || refused.Records[1].Index != 3 || err.Error() == "" {
		t.Fatalf("%v, %+v", err, refused)
	}
	lim := Limits{Client: true, RequireKeys: true, CheckTimestamps: true, NowMs: 150, BeforeMaxMs: 100, AfterMaxMs: 100}
	_, err = b.Validate(lim)
	if !errors.As(err, &refused) || protocol.CodeOf(err) != protocol.InvalidTimestamp || refused.Count != 150+25+25-1 {
		t.Fatalf("%v, %+v", err, refused)
	}
}

func TestTimestampLimits(t *testing.T) {
	const now = 1_700_000_000_000
	for _, c := range []struct {
		ts, before, after int64
		ok                bool
	}{
		{now, 0, 0, true}, {now - 1, 0, 0, false}, {now + 1, 0, 0, false}, {now - 10, 10, 0, true}, {now + 10, 0, 10, true},
		{now - 11, 10, 10, false}, {now + 11, 10, 10, false}, {math.MaxInt64, math.MaxInt64, math.MaxInt64, true},
		{math.MinInt64 + now + 1, math.MaxInt64, 0, true}, {0, math.MaxInt64, 3600000, true}, {math.MaxInt64, math.MaxInt64, 3600000, false},
	} {
		lim := Limits{NowMs: now, BeforeMaxMs: c.before, AfterMaxMs: c.after}
		if got := lim.timestampFits(c.ts); got != c.ok {
			t.Errorf("%+v gives %v", c, got)
		}
	}
	b := built(t, Options{}, 1)
	b = changed(b, func(b Batch) { binary.BigEndian.PutUint64(b[baseTimestampAt:], math.MaxUint64) })
	if _, err := b.Validate(Limits{Client: true, CheckTimestamps: true, NowMs: now}); err != nil {
		t.Errorf("a record without timestamp: %v", err)
	}
}

func TestValidateDoesNotAllocate(t *testing.T) {
	b := built(t, Options{}, 200)
	lim := Limits{Client: true, RequireKeys: true, CheckTimestamps: true, NowMs: 1000, BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64}
	n := testing.AllocsPerRun(50, func() {
		if _, err := b.Validate(lim); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%.1f allocations", n)
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, codec := range allCodecs {
		for _, n := range []int{1, 100, 5000} {
			batch := built(b, Options{Codec: codec}, n)
			b.Run(fmt.Sprintf("%s/%d", codec, n), func(b *testing.B) {
				b.ReportAllocs()
				var total int64
				for b.Loop() {
					info, err := batch.Validate(Limits{Client: true})
					if err != nil {
						b.Fatal(err)
					}
					total = info.UncompressedBytes
				}
				b.SetBytes(total)
			})
		}
	}
}
