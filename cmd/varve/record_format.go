package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The formats in which records are read and written by hand.
const (
	formatText   = "text"
	formatJSON   = "json"
	formatHex    = "hex"
	formatBase64 = "base64"
	formatRaw    = "raw"
)

var recordFormats = []string{formatText, formatJSON, formatHex, formatBase64, formatRaw}

// recordFields are what --print may name, in no order.
var recordFields = []string{"topic", "partition", "offset", "timestamp", "headers", "key", "value"}

// recordCodec turns records into lines and back.
type recordCodec struct {
	format     string
	separator  string   // between key and value, and between the fields of a line
	fields     []string // text, hex and base64 lines that are written
	keyed      bool     // lines that are read begin with a key
	nullMarker string   // what stands for null in lines; "" when nothing does
}

// inputRecord is one record to be produced.
type inputRecord struct {
	key, value []byte
	headers    []kgo.RecordHeader
	timestamp  time.Time // zero: now
	partition  int32     // -1: by key
	keyed      bool      // the input named a key, be it null
}

// unescape lets people write \t and \n as their shells do not.
func unescape(s string) string {
	if out, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`); err == nil {
		return out
	}
	return s
}

// maxLineBytes is how long a line may be whose record is of maxBytes.
func (c recordCodec) maxLineBytes(maxBytes int) int {
	const overhead = 4 << 10 // names of fields, separators
	switch c.format {
	case formatHex:
		return 2*maxBytes + overhead
	case formatJSON:
		return 6*maxBytes + overhead // \u0000 for each byte
	case formatBase64:
		return maxBytes/3*4 + overhead
	}
	return maxBytes + overhead
}

// decode reads one line. What it returns does not alias the line.
func (c recordCodec) decode(line []byte) (inputRecord, error) {
	if c.format == formatJSON {
		return decodeJSON(line)
	}
	rec := inputRecord{partition: -1, keyed: c.keyed}
	value := line
	if c.keyed {
		key, rest, found := bytes.Cut(line, []byte(c.separator))
		if !found {
			return rec, fmt.Errorf("there is no %q between key and value", c.separator)
		}
		var err error
		if rec.key, err = c.bytes(key); err != nil {
			return rec, fmt.Errorf("key: %w", err)
		}
		value = rest
	}
	var err error
	if rec.value, err = c.bytes(value); err != nil {
		return rec, fmt.Errorf("value: %w", err)
	}
	return rec, nil
}

// bytes decodes one field; nil is null.
func (c recordCodec) bytes(text []byte) ([]byte, error) {
	if c.nullMarker != "" && string(text) == c.nullMarker {
		return nil, nil
	}
	switch c.format {
	case formatHex:
		out, err := hex.DecodeString(string(text))
		return nonNil(out), err
	case formatBase64:
		out, err := base64.StdEncoding.DecodeString(string(text))
		return nonNil(out), err
	}
	return nonNil(slices.Clone(text)), nil
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// text encodes one field.
func (c recordCodec) text(dst, field []byte) []byte {
	switch {
	case field == nil:
		return append(dst, c.nullMarker...)
	case c.format == formatHex:
		return hex.AppendEncode(dst, field)
	case c.format == formatBase64:
		return base64.StdEncoding.AppendEncode(dst, field)
	}
	return append(dst, field...)
}

// encode appends one record that was read from a topic.
func (c recordCodec) encode(dst []byte, r *kgo.Record) []byte {
	switch c.format {
	case formatRaw:
		return append(dst, r.Value...)
	case formatJSON:
		return append(appendJSONRecord(dst, r), '\n')
	}
	for i, field := range c.fields {
		if i > 0 {
			dst = append(dst, c.separator...)
		}
		switch field {
		case "topic":
			dst = append(dst, r.Topic...)
		case "partition":
			dst = strconv.AppendInt(dst, int64(r.Partition), 10)
		case "offset":
			dst = strconv.AppendInt(dst, r.Offset, 10)
		case "timestamp":
			dst = r.Timestamp.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
		case "headers":
			for i, h := range r.Headers {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = c.text(append(append(dst, h.Key...), '='), h.Value)
			}
		case "key":
			dst = c.text(dst, r.Key)
		case "value":
			dst = c.text(dst, r.Value)
		}
	}
	return append(dst, '\n')
}

// jsonInput is a line of --format json. Topic and offset are what consume writes; produce does not use them.
type jsonInput struct {
	Topic, Offset json.RawMessage
	Partition     *int32
	Timestamp     json.RawMessage
	Key, Value    json.RawMessage
	KeyBase64     []byte `json:"keyBase64"`
	ValueBase64   []byte `json:"valueBase64"`
	Headers       []jsonInputHeader
}

type jsonInputHeader struct {
	Key         string
	Value       json.RawMessage
	ValueBase64 []byte `json:"valueBase64"`
}

func decodeJSON(line []byte) (inputRecord, error) {
	rec := inputRecord{partition: -1}
	var in jsonInput
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return rec, fmt.Errorf("no record in JSON, such as {\"key\":\"k\",\"value\":\"v\"}: %w", err)
	}
	if dec.More() {
		return rec, errors.New("something follows the record: one JSON object a line")
	}
	if in.Value == nil && in.ValueBase64 == nil {
		return rec, errors.New(`there is no "value"; a tombstone is written as "value":null`)
	}
	var err error
	if rec.value, err = jsonBytes(in.Value, in.ValueBase64); err != nil {
		return rec, fmt.Errorf("value: %w", err)
	}
	rec.keyed = in.Key != nil || in.KeyBase64 != nil
	if rec.key, err = jsonBytes(in.Key, in.KeyBase64); err != nil {
		return rec, fmt.Errorf("key: %w", err)
	}
	for _, h := range in.Headers {
		value, err := jsonBytes(h.Value, h.ValueBase64)
		if err != nil {
			return rec, fmt.Errorf("header %s: %w", h.Key, err)
		}
		rec.headers = append(rec.headers, kgo.RecordHeader{Key: h.Key, Value: value})
	}
	if in.Partition != nil {
		if rec.partition = *in.Partition; rec.partition < 0 {
			return rec, fmt.Errorf("partition %d is negative", rec.partition)
		}
	}
	if in.Timestamp != nil {
		rec.timestamp, err = parseTime(strings.Trim(string(in.Timestamp), `"`), time.Now())
	}
	return rec, err
}

// jsonBytes: a string is its UTF-8 bytes, null is null, any other value its JSON text.
func jsonBytes(raw json.RawMessage, b64 []byte) ([]byte, error) {
	switch {
	case b64 != nil:
		return b64, nil
	case raw == nil, string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return []byte(s), err
	}
	var out bytes.Buffer
	err := json.Compact(&out, raw)
	return nonNil(out.Bytes()), err
}

func appendJSONRecord(dst []byte, r *kgo.Record) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendJSONString(dst, r.Topic)
	dst = fmt.Appendf(dst, `,"partition":%d,"offset":%d,"timestamp":%d`, r.Partition, r.Offset, r.Timestamp.UnixMilli())
	dst = appendJSONBytes(append(dst, ','), "key", r.Key)
	dst = appendJSONBytes(append(dst, ','), "value", r.Value)
	if len(r.Headers) > 0 {
		dst = append(dst, `,"headers":[`...)
		for i, h := range r.Headers {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"key":`...)
			dst = appendJSONString(dst, h.Key)
			dst = append(appendJSONBytes(append(dst, ','), "value", h.Value), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendJSONBytes writes text as a string and anything else in base64 under another name, so that nothing is lost.
func appendJSONBytes(dst []byte, name string, b []byte) []byte {
	switch {
	case b == nil:
		return fmt.Appendf(dst, `%q:null`, name)
	case utf8.Valid(b):
		return appendJSONString(fmt.Appendf(dst, `%q:`, name), string(b))
	}
	dst = fmt.Appendf(dst, `"%sBase64":"`, name)
	return append(base64.StdEncoding.AppendEncode(dst, b), '"')
}

func appendJSONString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always has a form in JSON
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
