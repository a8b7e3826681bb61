package objstore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"varve/protocol"
)

// An object's file is its bytes followed by a trailer of 36 bytes, big endian:
//
//	offset size field
//	0      8    magic "varveobj"
//	8      4    version, 1
//	12     4    CRC32C of the object's bytes
//	16     8    number of the object's bytes
//	24     8    write id: random, makes the ETag of each write its own
//	32     4    CRC32C of the trailer's first 32 bytes
const (
	trailerBytes   = 36
	trailerVersion = 1
	trailerMagic   = "varveobj"
)

type trailer struct {
	crc     uint32
	size    int64
	writeID [8]byte
}

func (t trailer) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, trailerMagic...)
	dst = binary.BigEndian.AppendUint32(dst, trailerVersion)
	dst = binary.BigEndian.AppendUint32(dst, t.crc)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.size))
	dst = append(dst, t.writeID[:]...)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func (t trailer) etag() string { return hex.EncodeToString(t.writeID[:]) }

// parseTrailer reads the last trailerBytes of a file of fileBytes.
func parseTrailer(path string, b []byte, fileBytes int64) (trailer, error) {
	corrupt := func(format string, args ...any) (trailer, error) {
		return trailer{}, &protocol.CorruptionError{Where: "object file " + path, What: fmt.Sprintf(format, args...)}
	}
	if len(b) != trailerBytes || string(b[:8]) != trailerMagic {
		return corrupt("no trailer at its end")
	}
	if got := crc32.Checksum(b[:32], castagnoli); got != binary.BigEndian.Uint32(b[32:]) {
		return corrupt("trailer CRC32C is %08x, stored %08x", got, binary.BigEndian.Uint32(b[32:]))
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != trailerVersion {
		return trailer{}, fmt.Errorf("object file %s has trailer version %d: written by a newer varve", path, v)
	}
	t := trailer{crc: binary.BigEndian.Uint32(b[12:]), size: int64(binary.BigEndian.Uint64(b[16:]))}
	copy(t.writeID[:], b[24:32])
	if t.size != fileBytes-trailerBytes {
		return corrupt("%d bytes of object, trailer says %d", fileBytes-trailerBytes, t.size)
	}
	return t, nil
}
