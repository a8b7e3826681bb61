package group

import "encoding/binary"

// subscribed reads the topics of a consumer's subscription: version (2 bytes), count (4), each topic with its length (2).
func subscribed(metadata []byte) (topics []string, ok bool) {
	if len(metadata) < 6 || int16(binary.BigEndian.Uint16(metadata)) < 0 {
		return nil, false
	}
	count, rest := int32(binary.BigEndian.Uint32(metadata[2:])), metadata[6:]
	for ; count > 0; count-- {
		if len(rest) < 2 {
			return nil, false
		}
		n := int(int16(binary.BigEndian.Uint16(rest)))
		if n < 0 || len(rest) < 2+n {
			return nil, false
		}
		topics = append(topics, string(rest[2:2+n]))
		rest = rest[2+n:]
	}
	return topics, true
}
