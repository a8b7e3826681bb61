package protocol

import "encoding/binary"

// Header is a request header (RequestHeader.json, versions 1 and 2).
type Header struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string // "" also for null
	ClientIDNull  bool
}

// ParseHeader splits a frame (without its 4 size bytes) into header and body;
// the body aliases the frame. The header's version follows from key and
// version. Key and version are not checked against the version table: see
// Supported. Errors are Kafka code InvalidRequest; what was readable of the
// header is returned with them.
//
// The header of an ApiVersions request of an unknown version may have a form
// unknown to us: everything after the correlation id is then ignored.
func ParseHeader(frame []byte) (h Header, body []byte, err error) {
	if len(frame) < 8 {
		return h, nil, Errorf(InvalidRequest, "request of %d bytes is shorter than a header", len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	rest := frame[8:]
	if h.Key == KeyAPIVersions && !Supported(h.Key, h.Version) {
		h.ClientIDNull = true
		return h, nil, nil
	}
	if len(rest) < 2 {
		return h, nil, Errorf(InvalidRequest, "request header ends before the client id")
	}
	n := int(int16(binary.BigEndian.Uint16(rest)))
	rest = rest[2:]
	switch {
	case n < 0: // Kafka writes -1 and takes any
		h.ClientIDNull = true
	case n > len(rest):
		return h, nil, Errorf(InvalidRequest, "client id of %d bytes in a header with %d left", n, len(rest))
	default:
		h.ClientID, rest = string(rest[:n]), rest[n:]
	}
	if isFlexible(h.Key, h.Version) {
		w := walker{src: rest}
		if w.tags(); w.bad {
			return h, nil, Errorf(InvalidRequest, "request header has broken tagged fields")
		}
		rest = w.src
	}
	return h, rest, nil
}

// AppendResponseHeader appends a response header: version 1 (with empty tagged
// fields) for flexible versions, else 0. ApiVersions always has version 0, so
// that clients of any age can read the answer (KIP-511).
func AppendResponseHeader(dst []byte, key, version int16, corr int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(corr))
	if key != KeyAPIVersions && isFlexible(key, version) {
		dst = append(dst, 0)
	}
	return dst
}
