package record

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"varve/protocol"
)

// fuzzBoundBytes keeps fuzzing quick where an input expands.
const fuzzBoundBytes = 1 << 20

func fuzzSeeds(f *testing.F) {
	for _, codec := range allCodecs {
		f.Add([]byte(built(f, Options{Codec: codec, BaseOffset: 5}, 3)), uint8(codec))
		f.Add([]byte(built(f, Options{Codec: codec, Producer: &Producer{1, 1, 1}, Transactional: true}, 1)), uint8(codec))
	}
	f.Add([]byte(EndTxnMarker{Commit: true}.Batch()), uint8(0))
}

// FuzzBatch feeds bytes to everything that reads a batch. What Validate passes
// must iterate, be found by time, rewrite to any codec and read the same again.
func FuzzBatch(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte, to uint8) {
		b, rest, err := Next(data)
		if err != nil {
			if err != io.EOF && err != io.ErrUnexpectedEOF && protocol.CodeOf(err) == protocol.UnknownServerError {
				t.Fatal(err)
			}
			return
		}
		if len(b)+len(rest) != len(data) {
			t.Fatal("bytes were lost")
		}
		b = bytes.Clone(b)
		b.setCRC() // so that the fuzzer gets past it
		info, err := b.Validate(Limits{MaxDecompressedBytes: fuzzBoundBytes})
		_, clientErr := b.Validate(Limits{Client: true, RequireKeys: true, CheckTimestamps: true, MaxDecompressedBytes: fuzzBoundBytes})
		if err != nil {
			if protocol.CodeOf(err) != protocol.InvalidRecord || clientErr == nil {
				t.Fatal(err, clientErr)
			}
			// Iterating a broken batch may fail or end early, but not panic.
			_ = eachBounded(b)
			return
		}
		n := int32(0)
		if err := b.Each(func(r *Record) error { n++; return nil }); err != nil || n != info.Count {
			t.Fatalf("%d of %d records, %v", n, info.Count, err)
		}
		top := NoTimestamp
		if err := b.Times(func(_, ts int64) bool { top = max(top, ts); n--; return true }); err != nil || n != 0 || top != info.MaxTimestamp {
			t.Fatalf("%d records fewer or more, largest time %d of %d, %v", n, top, info.MaxTimestamp, err)
		}
		_, _ = b.ControlRecord()
		fuzzRewrite(t, b, Codec(to%5))
	})
}

func eachBounded(b Batch) error {
	it := &Iter{batch: b, left: b.Count()}
	if b.Codec() == None {
		it.plain.buf = b[HeaderLen:]
	} else {
		it.dec, it.err = openDecoder(b.Codec(), b[HeaderLen:], fuzzBoundBytes)
	}
	for it.Next() {
		_ = it.Record()
	}
	return it.Err()
}

func fuzzRewrite(t *testing.T, b Batch, to Codec) {
	out, err := Rewrite(b, to, DefaultLevel)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Validate(Limits{}); err != nil {
		t.Fatal(err)
	}
	want, got := records(t, b), records(t, out)
	for i := range want {
		if !sameRecord(want[i], got[i]) {
			t.Fatalf("record %d: %+v became %+v", i, want[i], got[i])
		}
	}
}

// FuzzDecompress feeds bytes to each decompressor.
func FuzzDecompress(f *testing.F) {
	for _, codec := range allCodecs[1:] {
		f.Add(deflate(f, codec, DefaultLevel, []byte("some data, some data, some data")), uint8(codec))
		f.Add(deflate(f, codec, 22, bytes.Repeat([]byte("x"), 70_000)), uint8(codec))
	}
	f.Fuzz(func(t *testing.T, data []byte, c uint8) {
		codec := Codec(c%4) + 1
		out, err := inflate(codec, data, fuzzBoundBytes)
		if err != nil && !errors.Is(err, protocol.InvalidRecord) {
			t.Fatal(err)
		}
		if len(out) > fuzzBoundBytes+windowBytes {
			t.Fatalf("%d bytes came out", len(out))
		}
	})
}

// FuzzBuilder builds one record of these parts and reads it back.
func FuzzBuilder(f *testing.F) {
	f.Add(int64(5), int64(1000), []byte("key"), []byte("value"), "header", []byte("x"), uint8(4))
	f.Add(int64(0), int64(-1), []byte(nil), []byte(nil), "", []byte(nil), uint8(0))
	f.Fuzz(func(t *testing.T, offset, ts int64, key, value []byte, header string, headerValue []byte, codec uint8) {
		want := Record{Offset: offset, Timestamp: ts, Key: key, Value: value, Headers: []Header{{header, headerValue}, {"", nil}}}
		bl := NewBuilder(Options{BaseOffset: offset, Codec: Codec(codec % 5)})
		if err := bl.Append(&want); err != nil {
			t.Fatal(err)
		}
		b, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Validate(Limits{Client: true}); err != nil {
			t.Fatal(err)
		}
		if got := records(t, b); len(got) != 1 || !sameRecord(got[0], want) {
			t.Fatalf("%+v became %+v", want, got)
		}
	})
}
