package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// fillRandom sets the exported fields of a kmsg struct to drawn values.
func fillRandom(t *rapid.T, v reflect.Value, depth int) {
	if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
		if rapid.IntRange(0, 9).Draw(t, "tagged") == 0 {
			tags.Set(uint32(rapid.IntRange(100, 1<<20).Draw(t, "tag")), []byte("tag value"))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" {
				fillRandom(t, v.Field(i), depth)
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "null") {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fillRandom(t, v.Elem(), depth)
	case reflect.Slice:
		if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
			return
		}
		n := rapid.IntRange(0, 3-depth).Draw(t, "len")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fillRandom(t, v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(rapid.Byte().Draw(t, "byte")))
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 5, -1).Draw(t, "string"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, "byte")))
	default:
		v.SetInt(rapid.Int64().Draw(t, "int") >> (64 - v.Type().Bits()))
	}
}

// TestDecodeAgainstKmsg holds schemas and kmsg together: what kmsg writes is
// walked to its exact end and read back the same; one byte less is refused, more are ignored.
func TestDecodeAgainstKmsg(t *testing.T) {
	for _, r := range APIs() {
		t.Run(r.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				version := rapid.Int16Range(r.Min, r.Max).Draw(t, "version")
				if !Supported(r.Key, version) {
					return
				}
				req := kmsg.RequestForKey(r.Key)
				req.SetVersion(version)
				fillRandom(t, reflect.ValueOf(req).Elem(), 0)
				body := req.AppendTo(nil)
				got, err := Decode(r.Key, version, body)
				if err != nil {
					t.Fatalf("version %d: % x: %v", version, body, err)
				}
				if again := got.AppendTo(nil); !slices.Equal(again, body) {
					t.Fatalf("version %d: % x came back as % x", version, body, again)
				}
				w := walker{src: body, version: version, flexible: isFlexible(r.Key, version)}
				if w.structure(schemas[r.Key]); w.bad || len(w.src) > 0 {
					t.Fatalf("version %d: the walk leaves %d of % x", version, len(w.src), body)
				}
				if more, err := Decode(r.Key, version, append(slices.Clone(body), 1, 0, 0)); err != nil || !slices.Equal(more.AppendTo(nil), body) {
					t.Fatalf("version %d: three bytes more give %v", version, err)
				}
				if len(body) > 0 {
					cut := rapid.IntRange(0, len(body)-1).Draw(t, "cut")
					if _, err := Decode(r.Key, version, body[:cut:cut]); !errors.Is(err, InvalidRequest) {
						t.Fatalf("version %d: %d of %d bytes give %v", version, cut, len(body), err)
					}
				}
			})
		})
	}
}

func TestDecodeRefusesVersions(t *testing.T) {
	for _, c := range [][2]int16{{KeyProduce, 2}, {KeyProduce, 14}, {KeyFetch, 3}, {KeyOffsetCommit, 1}, {24, 0}, {-1, 0}, {1000, 0}, {KeyMetadata, -1}} {
		if _, err := Decode(c[0], c[1], nil); !errors.Is(err, UnsupportedVersion) {
			t.Errorf("key %d version %d gives %v", c[0], c[1], err)
		}
	}
}

func TestProduceRecordsAliasTheFrame(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = []byte("records")
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	body := req.AppendTo(nil)
	got, err := Decode(KeyProduce, 9, body)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(body, 'r')
	body[at] = 'R'
	gotTopic := got.(*kmsg.ProduceRequest).Topics[0]
	if string(gotTopic.Partitions[0].Records) != "Records" {
		t.Error("the records are a copy")
	}
	body[slices.Index(body, 't')] = 'T'
	if gotTopic.Topic != "t" {
		t.Error("the topic name aliases the frame")
	}
}

// hostile writes the smallest body of a schema, with n elements in the arrays
// at the given depth and one unknown tag in each struct.
type hostile struct {
	version  int16
	flexible bool
	tags     bool
	depth, n int
	out      []byte
}

func (h *hostile) structure(ops []op, depth int) {
	for i := range ops {
		o := &ops[i]
		if h.version < o.from || h.version > o.to {
			continue
		}
		n := 0
		if depth == h.depth {
			n = h.n
		} else if depth < h.depth {
			n = 1
		}
		switch o.kind {
		case kindString:
			h.length(0, false)
		case kindBytes:
			h.length(0, true)
		case kindStructs:
			h.length(n, true)
			for range n {
				h.structure(o.elem, depth+1)
			}
		case kindValues:
			h.length(n, true)
			for range n {
				h.structure1(&o.elem[0])
			}
		case kindOptional:
			h.out = append(h.out, 1)
			h.structure(o.elem, depth+1)
		default:
			h.structure1(o)
		}
	}
	switch {
	case h.flexible && h.tags:
		h.out = append(h.out, 1, 100, 0)
	case h.flexible:
		h.out = append(h.out, 0)
	}
}

func (h *hostile) structure1(o *op) {
	if o.kind == kindString {
		h.length(0, false)
		return
	}
	h.out = append(h.out, make([]byte, fixedBytes[o.kind])...)
}

func (h *hostile) length(n int, wide bool) {
	switch {
	case h.flexible:
		h.out = binary.AppendUvarint(h.out, uint64(n)+1)
	case wide:
		h.out = binary.BigEndian.AppendUint32(h.out, uint32(n))
	default:
		h.out = binary.BigEndian.AppendUint16(h.out, uint16(n))
	}
}

// TestDecodeMemoryIsBounded measures what hostile bodies make Decode allocate:
// never more than twice the estimate it is held to.
func TestDecodeMemoryIsBounded(t *testing.T) {
	refused, worst := 0, 0.0
	for _, r := range APIs() {
		flex := flexibleSince[r.Key]
		for _, v := range []int16{r.Min, flex - 1, flex, r.Max} {
			for shape := range 6 {
				if !Supported(r.Key, v) {
					continue
				}
				h := hostile{version: v, flexible: isFlexible(r.Key, v), tags: shape%2 == 1, depth: shape / 2, n: 4_000}
				h.structure(schemas[r.Key], 0)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				req, err := Decode(r.Key, v, h.out)
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(req)
				if err != nil {
					refused++
				}
				got := int(after.TotalAlloc - before.TotalAlloc)
				worst = max(worst, float64(got)/float64(len(h.out)+DecodeFreeBytes/DecodeMaxFactor))
				if bound := 2 * (DecodeFreeBytes + DecodeMaxFactor*len(h.out)); got > bound {
					t.Errorf("%s %d shape %d: %d bytes took %d, bound %d (%v)", r.Name, v, shape, len(h.out), got, bound, err)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("no hostile body was refused")
	}
	t.Logf("%d refused, the worst of all took %.1f times its size", refused, worst)
}

func FuzzDecode(f *testing.F) {
	for _, r := range APIs() {
		for v := r.Min; v <= r.Max; v++ {
			req := kmsg.RequestForKey(r.Key)
			req.SetVersion(v)
			f.Add(r.Key, v, req.AppendTo(nil))
			h := hostile{version: v, flexible: isFlexible(r.Key, v), depth: 1, n: 2}
			h.structure(schemas[r.Key], 0)
			f.Add(r.Key, v, h.out)
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		req, err := Decode(key, version, body)
		if err == nil {
			// Encoding what was read must be readable again.
			if _, err := Decode(key, version, req.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, InvalidRequest) && !errors.Is(err, UnsupportedVersion) {
			t.Fatal(err)
		}
	})
}

func TestSchemaErrors(t *testing.T) {
	for _, text := range []string{"what", "[ i8", "i8 ]", "x:i8", "5-3:i8", "n[]what", "[]", "?[ i8"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("schema %q compiles", text)
				}
			}()
			mustSchema(text)
		}()
	}
}

func BenchmarkDecodeProduce(b *testing.B) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "some-topic"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = make([]byte, 16<<10)
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	body := req.AppendTo(nil)
	for _, name := range []string{"walk", "decode"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if name == "walk" {
					err = checkBody(KeyProduce, 9, body)
				} else {
					_, err = Decode(KeyProduce, 9, body)
				}
				if err != nil {
					b.Fatal(fmt.Errorf("decode: %w", err))
				}
			}
		})
	}
}
