package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/protocol"
)

// inflate decompresses src whole.
func inflate(codec Codec, src []byte, maxBytes int64) ([]byte, error) {
	d, err := openDecoder(codec, src, maxBytes)
	if err != nil {
		return nil, err
	}
	defer d.close()
	var out sliceWriter
	err = d.writeTo(&out)
	return out.b, err
}

func deflate(t testing.TB, codec Codec, level int, data []byte) []byte {
	t.Helper()
	var out sliceWriter
	e, release, err := openEncoder(codec, level, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	// Odd pieces, so that block borders fall anywhere.
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 1777)
		if _, err := e.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return out.b
}

func kgoCodec(codec Codec) kgo.CompressionCodec {
	return map[Codec]kgo.CompressionCodec{Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression()}[codec]
}

// samples are data of several sizes and kinds.
func samples() [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	return [][]byte{
		{}, []byte("a"), []byte(strings.Repeat("some text. ", 20)), bytes.Repeat([]byte("0123456789"), 30_000),
		noise[:xerialBlockBytes], noise[:xerialBlockBytes+1], noise, make([]byte, 300_000),
	}
}

// TestCodecsAgainstKgo proves both directions with the codecs of a real client.
func TestCodecsAgainstKgo(t *testing.T) {
	for _, codec := range allCodecs[1:] {
		theirs, err := kgo.DefaultCompressor(kgoCodec(codec))
		if err != nil {
			t.Fatal(err)
		}
		for i, data := range samples() {
			packed, used := theirs.Compress(new(bytes.Buffer), data)
			if Codec(used) != codec {
				t.Fatalf("kgo used codec %d", used)
			}
			if got, err := inflate(codec, packed, MaxDecompressedBytes); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s sample %d from kgo: %d bytes, %v", codec, i, len(got), err)
			}
			if len(data) == 0 {
				continue // a batch without records is never compressed
			}
			for _, level := range []int{DefaultLevel, 1, 22} {
				packed := deflate(t, codec, level, data)
				if got, err := kgo.DefaultDecompressor().Decompress(packed, kgo.CompressionCodecType(codec)); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s level %d sample %d to kgo: %d bytes, %v", codec, level, i, len(got), err)
				}
				if got, err := inflate(codec, packed, MaxDecompressedBytes); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s level %d sample %d to ourselves: %d bytes, %v", codec, level, i, len(got), err)
				}
			}
		}
	}
}

func TestLevelsMatter(t *testing.T) {
	text := []byte{}
	random := rand.New(rand.NewPCG(3, 4))
	for len(text) < 60_000 {
		text = append(text, strings.Repeat(string(rune('a'+random.IntN(26))), 1+random.IntN(6))...)
	}
	for _, c := range []struct {
		codec    Codec
		low, top int
	}{{Gzip, 1, 9}, {LZ4, DefaultLevel, 8}, {Zstd, 1, 22}} {
		low, top := len(deflate(t, c.codec, c.low, text)), len(deflate(t, c.codec, c.top, text))
		if low <= top {
			t.Errorf("%s: %d bytes at level %d, %d at level %d", c.codec, low, c.low, top, c.top)
		}
	}
	if a, b := deflate(t, LZ4, 9, text), deflate(t, LZ4, DefaultLevel, text); !bytes.Equal(a, b) {
		t.Error("level 9 of lz4 is Kafka's default")
	}
}

func zstdBytes(t testing.TB, data []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	return w.EncodeAll(data, nil)
}

// streamed compresses without telling the length ahead.
func streamedZstd(t testing.TB, n int64, opts ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	copyZeros(t, w, n)
	return out.Bytes()
}

func copyZeros(t testing.TB, w io.WriteCloser, n int64) {
	t.Helper()
	chunk := make([]byte, 1<<16)
	for ; n > 0; n -= int64(len(chunk)) {
		if _, err := w.Write(chunk[:min(n, int64(len(chunk)))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBombs decompresses what expands beyond the bound: a clear error, and
// memory that stays near the decoder's own buffers.
func TestBombs(t *testing.T) {
	const size, bound = 32 << 20, 4 << 20
	var gz, lz bytes.Buffer
	copyZeros(t, gzip.NewWriter(&gz), size)
	copyZeros(t, lz4.NewWriter(&lz), size)
	raw := s2.EncodeSnappy(nil, make([]byte, size))
	claims := binary.AppendUvarint(nil, 1<<31) // raw snappy that claims 2 GiB
	for _, c := range []struct {
		name  string
		codec Codec
		src   []byte
		maxMB uint64
	}{
		{"gzip", Gzip, gz.Bytes(), 4},
		{"lz4", LZ4, lz.Bytes(), 12},
		{"snappy raw", Snappy, raw, 4},
		{"snappy claim", Snappy, append(claims, 0, 'a'), 4},
		{"snappy framed", Snappy, deflate(t, Snappy, DefaultLevel, make([]byte, size)), 4},
		{"zstd of unknown length", Zstd, streamedZstd(t, size, zstd.WithWindowSize(8<<20)), 14},
		{"zstd of known length", Zstd, zstdBytes(t, make([]byte, size), zstd.WithSingleSegment(true)), 4},
		{"zstd claim", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0xff, 0, 1, 0, 0}, 4},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := discard(c.codec, c.src, bound)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s gives %v", c.name, err)
		}
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > c.maxMB {
			t.Errorf("%s: %d compressed bytes took %d MiB", c.name, len(c.src), got)
		}
	}
}

func discard(codec Codec, src []byte, maxBytes int64) (int64, error) {
	d, err := openDecoder(codec, src, maxBytes)
	if err != nil {
		return 0, err
	}
	defer d.close()
	err = d.writeTo(io.Discard)
	return d.off, err
}

// TestBigZstdWindows decodes frames whose windows only few decoders may hold, by
// more goroutines than there are places.
func TestBigZstdWindows(t *testing.T) {
	src := streamedZstd(t, 9<<20, zstd.WithWindowSize(16<<20))
	segment := zstdBytes(t, make([]byte, 9<<20), zstd.WithSingleSegment(true))
	var wg sync.WaitGroup
	for i := range 3 * maxBigZstdDecoders {
		wg.Go(func() {
			in := src
			if i%2 == 0 {
				in = segment
			}
			if n, err := discard(Zstd, in, MaxDecompressedBytes); err != nil || n != 9<<20 {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	wg.Wait()
	if len(bigZstdPlaces) != 0 {
		t.Error("a place was not given back")
	}
	if _, err := discard(Zstd, streamedZstd(t, 100, zstd.WithWindowSize(256<<20)), MaxDecompressedBytes); err != nil && !errors.Is(err, protocol.InvalidRecord) {
		t.Error(err)
	}
	if len(bigZstdPlaces) != 0 {
		t.Error("a place was not given back after an error")
	}
}

// TestBrokenStreams cuts and damages compressed data everywhere: an error or the
// same bytes, never a panic, and the pooled decoder still works.
func TestBrokenStreams(t *testing.T) {
	data := []byte(strings.Repeat("some data that repeats, some that does not 123 ", 50))
	for _, codec := range allCodecs[1:] {
		packed := deflate(t, codec, DefaultLevel, data)
		for n := range packed {
			if got, err := inflate(codec, packed[:n], MaxDecompressedBytes); err == nil && len(got) == len(data) {
				// What follows the data itself (checksums) may be dispensable.
				if !bytes.Equal(got, data) {
					t.Fatalf("%s cut at %d gives other bytes", codec, n)
				}
			}
			bad := bytes.Clone(packed)
			bad[n] ^= 0x55
			if _, err := inflate(codec, bad, MaxDecompressedBytes); err != nil && !errors.Is(err, protocol.InvalidRecord) {
				t.Fatalf("%s damaged at %d gives %v", codec, n, err)
			}
		}
		if got, err := inflate(codec, packed, MaxDecompressedBytes); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s does not recover: %v", codec, err)
		}
	}
	if _, err := openDecoder(5, nil, 1); !errors.Is(err, protocol.InvalidRecord) {
		t.Error(err)
	}
}
