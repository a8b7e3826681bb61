package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// sealed makes a batch of these header bytes and a record section, with proper
// length and CRC.
func sealed(header Batch, section []byte) Batch {
	b := append(slices.Clone(header[:HeaderLen]), section...)
	binary.BigEndian.PutUint32(b[lengthAt:], uint32(len(b)-lengthOverhead))
	b.setCRC()
	return b
}

// changed is b with a change to its bytes and a proper CRC again.
func changed(b Batch, change func(b Batch)) Batch {
	b = slices.Clone(b)
	change(b)
	b.setCRC()
	return b
}

// built makes a batch of n records with some of everything.
func built(t testing.TB, opts Options, n int) Batch {
	t.Helper()
	bl := NewBuilder(opts)
	for i := range n {
		value := bytes.Repeat(fmt.Appendf(nil, "value %d ", i), i%40)
		if err := bl.Add(1000+int64(i%7), fmt.Appendf(nil, "key-%d", i), value, Header{"h", []byte("x")}, Header{"null", nil}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// records copies all records of a batch.
func records(t interface{ Fatal(...any) }, b Batch) []Record {
	var out []Record
	err := b.Each(func(r *Record) error {
		c := *r
		c.Key, c.Value, c.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
		for i := range c.Headers {
			c.Headers[i].Value = slices.Clone(c.Headers[i].Value)
		}
		out = append(out, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func sameRecord(a, b Record) bool {
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool { return x.Key == y.Key && sameBytes(x.Value, y.Value) })
}

// drawBytes draws null, nothing, some noise, or text longer than the window. It
// draws few numbers, since drawing is what costs time.
func drawBytes(t *rapid.T, name string) []byte {
	n := rapid.IntRange(-1, 70).Draw(t, name)
	switch {
	case n < 0:
		return nil
	case n >= 68:
		return bytes.Repeat([]byte("long text "), 5000)
	}
	noise := rand.New(rand.NewPCG(uint64(n), uint64(len(name))))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(noise.Uint32())
	}
	return b
}

// drawRecords draws records at consecutive or gapped offsets from base on.
func drawRecords(t *rapid.T, base int64, gaps bool) []Record {
	var out []Record
	next := base
	for range rapid.IntRange(1, 12).Draw(t, "records") {
		r := Record{Offset: next, Timestamp: rapid.Int64Range(-1, 1<<42).Draw(t, "ts"), Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{rapid.SampledFrom([]string{"", "h", "hé", strings.Repeat("long", 9000)}).Draw(t, "header"), drawBytes(t, "header value")})
		}
		out = append(out, r)
		next++
		if gaps {
			next += int64(rapid.IntRange(0, 3).Draw(t, "gap"))
		}
	}
	return out
}

func drawOptions(t *rapid.T) Options {
	o := Options{
		BaseOffset:    rapid.Int64Range(0, 1<<60).Draw(t, "base"),
		LeaderEpoch:   rapid.Int32().Draw(t, "epoch"),
		Codec:         rapid.SampledFrom(allCodecs).Draw(t, "codec"),
		Level:         rapid.SampledFrom([]int{DefaultLevel, 1}).Draw(t, "level"),
		Transactional: rapid.Bool().Draw(t, "transactional"),
	}
	if o.Transactional || rapid.Bool().Draw(t, "idempotent") {
		o.Producer = &Producer{rapid.Int64Min(0).Draw(t, "pid"), rapid.Int16Min(0).Draw(t, "pepoch"), rapid.Int32Min(0).Draw(t, "sequence")}
	}
	return o
}
