package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A schema says what a request's body looks like, as text: fields separated by
// blanks, each of them
//
//	[versions:]type
//
// with versions as "3", "3+", "4-6" or "-12" and these types:
//
//	bool i8 i16 i32 i64 uuid   fixed size
//	str bytes                  with a length; compact in flexible versions
//	[ fields ]                 array of structs
//	[]type                     array of values
//	?[ fields ]                struct that may be null
//
// A leading "n" (nstr, nbytes, n[ ..., n[]str) permits null. In flexible
// versions every struct, the body too, ends with tagged fields (KIP-482).
type op struct {
	kind     kind
	nullable bool
	from, to int16
	elem     []op // of arrays: the struct's fields, or one value
}

type kind int8

const (
	kindFixed1 kind = iota
	kindFixed2
	kindFixed4
	kindFixed8
	kindFixed16
	kindString
	kindBytes
	kindStructs
	kindValues
	kindOptional
)

var kindNames = map[string]kind{
	"bool": kindFixed1, "i8": kindFixed1, "i16": kindFixed2, "i32": kindFixed4, "i64": kindFixed8, "uuid": kindFixed16,
	"str": kindString, "bytes": kindBytes,
}

var fixedBytes = [...]int{kindFixed1: 1, kindFixed2: 2, kindFixed4: 4, kindFixed8: 8, kindFixed16: 16}

// What kmsg allocates, estimated from above for 64-bit machines: a struct of an
// array with its inline fields, a string header, a map for unknown tags and one
// more entry of it.
const (
	costStructBytes   = 64
	costStringBytes   = 16
	costFirstTagBytes = 400
	costTagBytes      = 64
)

// maxStringBytes is the longest string Kafka reads.
const maxStringBytes = math.MaxInt16

// mustSchema compiles a schema of the table. A wrong one is a bug that no
// program start survives.
func mustSchema(text string) []op {
	ops, rest, err := parseSchema(strings.Fields(text))
	if err != nil || len(rest) > 0 {
		panic(fmt.Sprintf("protocol: schema %q: %v, left %q", text, err, rest))
	}
	return ops
}

// parseSchema compiles fields up to the end or a closing bracket.
func parseSchema(words []string) (ops []op, rest []string, err error) {
	for len(words) > 0 && words[0] != "]" {
		o := op{to: math.MaxInt16}
		word := words[0]
		words = words[1:]
		if versions, typ, ok := strings.Cut(word, ":"); ok {
			if o.from, o.to, err = parseVersions(versions); err != nil {
				return nil, nil, err
			}
			word = typ
		}
		switch name := strings.TrimPrefix(word, "n"); {
		case name == "[" || name == "?[":
			o.kind, o.nullable = kindStructs, name != word
			if name == "?[" {
				o.kind = kindOptional
			}
			if o.elem, words, err = parseSchema(words); err != nil {
				return nil, nil, err
			}
			if len(words) == 0 {
				return nil, nil, fmt.Errorf("array without an end")
			}
			words = words[1:]
		case strings.HasPrefix(name, "[]"):
			o.kind, o.nullable = kindValues, name != word
			if o.elem, _, err = parseSchema([]string{name[2:]}); err != nil {
				return nil, nil, err
			}
		default:
			k, ok := kindNames[name]
			if !ok {
				return nil, nil, fmt.Errorf("unknown type %q", word)
			}
			o.kind, o.nullable = k, name != word
		}
		ops = append(ops, o)
	}
	return ops, words, nil
}

func parseVersions(s string) (from, to int16, err error) {
	low, high, isRange := strings.Cut(s, "-")
	if plus, ok := strings.CutSuffix(s, "+"); ok {
		low, high, isRange = plus, strconv.Itoa(math.MaxInt16), true
	}
	if !isRange {
		high = low
	}
	if low == "" {
		low = "0"
	}
	f, err1 := strconv.ParseInt(low, 10, 16)
	t, err2 := strconv.ParseInt(high, 10, 16)
	if err1 != nil || err2 != nil || f > t {
		return 0, 0, fmt.Errorf("bad versions %q", s)
	}
	return int16(f), int16(t), nil
}

// walker checks a body against a schema without building anything.
type walker struct {
	src      []byte // what is left
	version  int16
	flexible bool
	bad      bool
	cost     int // bytes that decoding will allocate, about
}

func (w *walker) fail() {
	w.bad = true
	w.src = nil
}

// structure walks one struct with its tagged fields.
func (w *walker) structure(ops []op) {
	for i := range ops {
		o := &ops[i]
		if w.version >= o.from && w.version <= o.to {
			w.field(o)
		}
	}
	if w.flexible {
		w.tags()
	}
}

func (w *walker) field(o *op) {
	switch o.kind {
	case kindString:
		n, ok := w.length(o.nullable, false)
		if ok && n > maxStringBytes {
			w.fail()
			return
		}
		w.cost += n + costStringBytes
		w.skip(n)
	case kindBytes:
		n, _ := w.length(o.nullable, true)
		w.skip(n)
	case kindStructs:
		n, _ := w.length(o.nullable, true)
		for ; n > 0 && !w.bad; n-- {
			w.cost += costStructBytes
			w.structure(o.elem)
		}
	case kindValues:
		w.values(o)
	case kindOptional:
		switch present := int8(w.fixed(1)[0]); {
		case present >= 0:
			w.structure(o.elem)
		case present < -1:
			w.fail()
		}
	default:
		w.skip(fixedBytes[o.kind])
	}
}

func (w *walker) values(o *op) {
	n, _ := w.length(o.nullable, true)
	elem := &o.elem[0]
	if elem.kind == kindString {
		for ; n > 0 && !w.bad; n-- {
			w.field(elem)
		}
		return
	}
	size := fixedBytes[elem.kind]
	if n > len(w.src)/size {
		w.fail()
		return
	}
	w.cost += n * size
	w.skip(n * size)
}

// length reads a length or count, which is never above the bytes left. ok is
// false for null.
func (w *walker) length(nullable, wide bool) (n int, ok bool) {
	var v int64
	switch {
	case w.flexible:
		v = int64(int32(w.uvarint()) - 1)
	case wide:
		v = int64(int32(binary.BigEndian.Uint32(w.fixed(4))))
	default:
		v = int64(int16(binary.BigEndian.Uint16(w.fixed(2))))
	}
	if v < 0 && nullable { // Kafka writes -1 and takes any
		return 0, false
	}
	if v < 0 || v > int64(len(w.src)) {
		w.fail()
		return 0, false
	}
	return int(v), true
}

var zeros [16]byte

// fixed cuts n bytes off, zeros when they are not there.
func (w *walker) fixed(n int) []byte {
	if n > len(w.src) {
		w.fail()
		return zeros[:n]
	}
	b := w.src[:n]
	w.src = w.src[n:]
	return b
}

func (w *walker) skip(n int) {
	if n < 0 || n > len(w.src) {
		w.fail()
		return
	}
	w.src = w.src[n:]
}

func (w *walker) uvarint() uint32 {
	if len(w.src) > 0 && w.src[0] < 0x80 {
		v := uint32(w.src[0])
		w.src = w.src[1:]
		return v
	}
	v, n := binary.Uvarint(w.src)
	if n <= 0 || v > math.MaxUint32 {
		w.fail()
		return 0
	}
	w.src = w.src[n:]
	return uint32(v)
}

func (w *walker) tags() {
	n := w.uvarint()
	if n > 0 {
		w.cost += costFirstTagBytes
	}
	for ; n > 0 && !w.bad; n-- {
		w.cost += costTagBytes
		w.uvarint()
		w.skip(int(w.uvarint()))
	}
}
