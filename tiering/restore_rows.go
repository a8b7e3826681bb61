package tiering

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"

	"varve/metastore"
	"varve/protocol"
)

// restoreRowsInMemory is how many rows of one partition a restore holds in memory, whatever number it has: restorePartitions and one
// more are worked on and gathered at a time, at about 250 bytes a row.
const restoreRowsInMemory = 50_000

// partRows are the rows of one partition that is being restored, one for each base and segment id. A bounded number is in memory; when
// there are more they go, sorted, into a file that has no name, so that no crash leaves it: one run after the other, a younger one's row
// counts. For one goroutine.
//
// A record of the file has one width: 8 bytes of the base, 16 of the id, in the order of both; 1 with the length of the packed row,
// the row, and zeros.
type partRows struct {
	key partKey
	dir string // of the file; "" = the system's own for temporary files
	max int    // rows in memory

	mem     []metastore.RemoteSegment // those that were put last
	at      map[rowKey]int            // their places; nil until somebody asks for one
	file    *os.File
	runs    []rowRun // the oldest first
	size    int64    // of the file, bytes
	places  []string // locations, by the numbers that packed rows have for them
	placeOf map[string]uint32
}

type rowKey struct {
	base int64
	id   protocol.UUID
}

// rowRun is a sorted part of the file.
type rowRun struct {
	off         int64 // byte at which it begins
	rows        int
	first, last int64 // bases
}

const (
	rowKeyBytes = 8 + 16
	// runReadBytes is read at once of each run while all of them are merged.
	runReadBytes = 16 << 10
)

// rowRecordBytes is the width of a record: a packed row is longest when it waits to be deleted.
var rowRecordBytes = rowKeyBytes + 1 + len(metastore.PackSegments(nil, &metastore.RemoteSegment{State: metastore.SegDeleteStarted}, func(string) uint32 { return 0 }))

func newPartRows(key partKey, dir string, max int) *partRows {
	return &partRows{key: key, dir: dir, max: max}
}

func keyOf(r *metastore.RemoteSegment) rowKey { return rowKey{r.Base, r.ID} }

func compareRows(a, b metastore.RemoteSegment) int {
	return cmp.Or(cmp.Compare(a.Base, b.Base), bytes.Compare(a.ID[:], b.ID[:]))
}

// add takes a row that is not there yet.
func (p *partRows) add(r metastore.RemoteSegment) error {
	if p.at != nil {
		p.at[keyOf(&r)] = len(p.mem)
	}
	if p.mem = append(p.mem, r); len(p.mem) >= p.max {
		return p.spill()
	}
	return nil
}

// put takes a row in the place of the one with its base and id.
func (p *partRows) put(r metastore.RemoteSegment) error {
	if i, ok := p.inMemory(keyOf(&r)); ok {
		p.mem[i] = r
		return nil
	}
	return p.add(r)
}

func (p *partRows) inMemory(k rowKey) (int, bool) {
	if p.at == nil {
		p.at = make(map[rowKey]int, len(p.mem))
		for i := range p.mem {
			p.at[keyOf(&p.mem[i])] = i
		}
	}
	i, ok := p.at[k]
	return i, ok
}

// get returns the row with this base and id; false when there is none.
func (p *partRows) get(k rowKey) (r metastore.RemoteSegment, ok bool, err error) {
	if i, ok := p.inMemory(k); ok {
		return p.mem[i], true, nil
	}
	want := k.bytes()
	record := make([]byte, rowRecordBytes)
	for _, run := range slices.Backward(p.runs) {
		if k.base < run.first || k.base > run.last {
			continue
		}
		i := sort.Search(run.rows, func(i int) bool {
			if err == nil {
				_, err = p.file.ReadAt(record, run.off+int64(i)*int64(rowRecordBytes))
			}
			return err != nil || bytes.Compare(record[:rowKeyBytes], want[:]) >= 0
		})
		if err != nil {
			return r, false, err
		}
		if i == run.rows {
			continue
		}
		if _, err := p.file.ReadAt(record, run.off+int64(i)*int64(rowRecordBytes)); err != nil {
			return r, false, err
		}
		if bytes.Equal(record[:rowKeyBytes], want[:]) {
			r, err = p.decode(record)
			return r, err == nil, err
		}
	}
	return r, false, nil
}

// bytes are in the order of base and id.
func (k rowKey) bytes() (b [rowKeyBytes]byte) {
	binary.BigEndian.PutUint64(b[:], uint64(k.base)^1<<63)
	copy(b[8:], k.id[:])
	return b
}

// spill moves what is in memory into the file, as a run.
func (p *partRows) spill() error {
	if len(p.mem) == 0 {
		return nil
	}
	if p.file == nil {
		f, err := unnamedFile(p.dir)
		if err != nil {
			return fmt.Errorf("rows of a restore: %w", err)
		}
		p.file = f
	}
	slices.SortFunc(p.mem, compareRows)
	run := rowRun{off: p.size, rows: len(p.mem), first: p.mem[0].Base, last: p.mem[len(p.mem)-1].Base}
	w := bufio.NewWriterSize(io.NewOffsetWriter(p.file, p.size), 1<<20)
	var record []byte
	for i := range p.mem {
		record = p.encode(record[:0], &p.mem[i])
		if _, err := w.Write(record); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	p.size += int64(run.rows) * int64(rowRecordBytes)
	p.runs, p.mem, p.at = append(p.runs, run), p.mem[:0], nil
	return nil
}

func (p *partRows) encode(dst []byte, r *metastore.RemoteSegment) []byte {
	k := keyOf(r).bytes()
	dst = append(append(dst, k[:]...), 0)
	dst = metastore.PackSegments(dst, r, func(location string) uint32 {
		n, ok := p.placeOf[location]
		if !ok {
			if p.placeOf == nil {
				p.placeOf = map[string]uint32{}
			}
			n = uint32(len(p.places))
			p.places, p.placeOf[location] = append(p.places, location), n
		}
		return n
	})
	dst[rowKeyBytes] = byte(len(dst) - rowKeyBytes - 1)
	return append(dst, make([]byte, rowRecordBytes-len(dst))...)
}

func (p *partRows) decode(record []byte) (r metastore.RemoteSegment, err error) {
	n := int(record[rowKeyBytes])
	if n > rowRecordBytes-rowKeyBytes-1 {
		return r, corrupt("row set aside by a restore", "%d bytes", n)
	}
	rows, err := metastore.UnpackSegments(record[rowKeyBytes+1:][:n], p.key.topic, p.key.partition, p.places)
	if err == nil && len(rows) != 1 {
		err = corrupt("row set aside by a restore", "%d rows in its place", len(rows))
	}
	if err != nil {
		return r, err
	}
	return rows[0], nil
}

// windows calls fn with the rows in the order of base and id, once at least, a bounded number at a time, but all of one base together.
// from and to are the bases that a window is about: the first begins below all, the last ends behind all. rows may be changed, and are
// valid during the call.
func (p *partRows) windows(fn func(rows []metastore.RemoteSegment, from, to int64) error) error {
	if len(p.runs) == 0 {
		p.at = nil
		slices.SortFunc(p.mem, compareRows)
		return fn(p.mem, math.MinInt64, math.MaxInt64)
	}
	if err := p.spill(); err != nil {
		return err
	}
	from, rows := int64(math.MinInt64), make([]metastore.RemoteSegment, 0, p.max)
	err := p.merged(func(r metastore.RemoteSegment) error {
		if len(rows) >= p.max && r.Base > rows[len(rows)-1].Base {
			if err := fn(rows, from, r.Base); err != nil {
				return err
			}
			from, rows = r.Base, rows[:0]
		}
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		return err
	}
	return fn(rows, from, math.MaxInt64)
}

// merged calls fn with the rows of all runs in their order.
func (p *partRows) merged(fn func(metastore.RemoteSegment) error) error {
	var h runHeap
	for i, run := range p.runs {
		part := io.NewSectionReader(p.file, run.off, int64(run.rows)*int64(rowRecordBytes))
		c := &runCursor{number: i, in: bufio.NewReaderSize(part, runReadBytes), left: run.rows, record: make([]byte, rowRecordBytes)}
		if err := c.next(); err != nil {
			return err
		}
		h = append(h, c)
	}
	heap.Init(&h)
	var last []byte
	for len(h) > 0 {
		c := h[0]
		if !bytes.Equal(last, c.record[:rowKeyBytes]) {
			last = append(last[:0], c.record[:rowKeyBytes]...)
			r, err := p.decode(c.record)
			if err == nil {
				err = fn(r)
			}
			if err != nil {
				return err
			}
		}
		if c.left == 0 {
			heap.Pop(&h)
			continue
		}
		if err := c.next(); err != nil {
			return err
		}
		heap.Fix(&h, 0)
	}
	return nil
}

// close gives the file back; rows that were in it are gone then. It may be called again, and on nil.
func (p *partRows) close() {
	if p != nil && p.file != nil {
		_ = p.file.Close() // it has no name, and nothing of it is wanted
		p.file, p.runs = nil, nil
	}
}

// runCursor stands at a record of a run.
type runCursor struct {
	number int // of the run
	in     *bufio.Reader
	left   int // records behind it
	record []byte
}

func (c *runCursor) next() error {
	c.left--
	_, err := io.ReadFull(c.in, c.record)
	return err
}

// runHeap has the lowest key on top, of equal ones that of the youngest run.
type runHeap []*runCursor

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	c := bytes.Compare(h[i].record[:rowKeyBytes], h[j].record[:rowKeyBytes])
	return c < 0 || c == 0 && h[i].number > h[j].number
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)   { *h = append(*h, x.(*runCursor)) }
func (h *runHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}
