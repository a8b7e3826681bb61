package objstore

import (
	"fmt"
	"hash/crc32"
	"io"

	"varve/protocol"
)

// exactBody is a body of a known length: it ends with io.EOF exactly there, reports
// an earlier end as an error, and checks the CRC32C of the whole when one is known.
type exactBody struct {
	src   io.ReadCloser
	key   string
	left  int64
	crc   uint32
	want  *uint32
	fixed error // what each further Read returns
}

func newExactBody(src io.ReadCloser, key string, lengthBytes int64, wantCRC *uint32) *exactBody {
	return &exactBody{src: src, key: key, left: lengthBytes, want: wantCRC}
}

func (b *exactBody) Read(p []byte) (int, error) {
	if b.fixed == nil && b.left == 0 {
		b.fixed = b.finish()
	}
	if b.fixed != nil || len(p) == 0 {
		return 0, b.fixed
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.want != nil {
		b.crc = crc32.Update(b.crc, castagnoli, p[:n])
	}
	switch {
	case b.left == 0:
		// io.ReadFull drops an error that comes with the last byte, so a body that turns
		// out wrong keeps its last bytes back.
		if b.fixed = b.finish(); b.fixed != io.EOF {
			return 0, b.fixed
		}
		return n, nil
	case err == io.EOF:
		b.fixed = shortRead(b.key, b.left)
	default:
		b.fixed = err
	}
	return n, b.fixed
}

func (b *exactBody) finish() error {
	if b.want != nil && *b.want != b.crc {
		return &protocol.CorruptionError{
			Where: fmt.Sprintf("object %q", b.key),
			What:  fmt.Sprintf("CRC32C of its bytes is %08x, stored %08x", b.crc, *b.want),
		}
	}
	return io.EOF
}

func (b *exactBody) Close() error { return b.src.Close() }
