package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of what decoding a request may allocate, as estimated by the walk.
const (
	DecodeFreeBytes = 128 << 10
	DecodeMaxFactor = 16
)

// Decode reads a request body. The version must be Supported. Strings and
// arrays are copies; the record bytes of Produce alias body.
//
// Bytes after the body are ignored, as Apache Kafka ignores them: librdkafka
// sends some after a Metadata request for all topics.
//
// Errors are Kafka codes: UnsupportedVersion, or InvalidRequest for a body that
// is too short or would need far more memory than its size warrants.
func Decode(key, version int16, body []byte) (req kmsg.Request, err error) {
	if !Supported(key, version) {
		return nil, Errorf(UnsupportedVersion, "API key %d version %d", key, version)
	}
	if err := checkBody(key, version, body); err != nil {
		return nil, err
	}
	req = kmsg.RequestForKey(key)
	req.SetVersion(version)
	// The walk has vetted the body, so a panic of kmsg here would be a
	// disagreement between the two; the client gets an error and lives.
	defer func() {
		if p := recover(); p != nil {
			req, err = nil, Errorf(InvalidRequest, "%s: %v", kmsg.NameForKey(key), p)
		}
	}()
	if err := req.ReadFrom(body); err != nil {
		return nil, Errorf(InvalidRequest, "%s version %d: %v", kmsg.NameForKey(key), version, err)
	}
	return req, nil
}

// Encode appends a whole response frame: 4 size bytes, header, body. The
// response's version must be set.
func Encode(dst []byte, resp kmsg.Response, corr int32) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, resp.Key(), resp.GetVersion(), corr)
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func checkBody(key, version int16, body []byte) error {
	ops, ok := schemas[key]
	if !ok {
		return &InvariantError{What: fmt.Sprintf("API key %d is supported but has no schema", key)}
	}
	w := walker{src: body, version: version, flexible: isFlexible(key, version)}
	w.structure(ops)
	if w.bad {
		return Errorf(InvalidRequest, "%s version %d: the body is cut short or malformed", kmsg.NameForKey(key), version)
	}
	if w.cost > DecodeFreeBytes+DecodeMaxFactor*len(body) {
		return Errorf(InvalidRequest, "%s version %d: %d bytes of body would take about %d bytes of memory", kmsg.NameForKey(key), version, len(body), w.cost)
	}
	return nil
}
