package record

// Codec is a compression codec as it stands in the batch attributes.
type Codec int8

// The codecs of Kafka (CompressionType.java).
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// String is the name that the config compression.type uses.
func (c Codec) String() string {
	if c < 0 || int(c) >= len(codecNames) {
		return "unknown"
	}
	return codecNames[c]
}

// ParseCodec reads the names that String writes; "uncompressed", which is how
// topic configs call it, is None.
func ParseCodec(name string) (Codec, bool) {
	if name == "uncompressed" {
		return None, true
	}
	for i, n := range codecNames {
		if n == name {
			return Codec(i), true
		}
	}
	return None, false
}
