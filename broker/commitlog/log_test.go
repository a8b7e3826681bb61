package commitlog

import (
	"testing"

	"varve/protocol/record"
)

func TestAppendRollReadReopen(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	appendN(t, l, 200, 3)
	checkLog(t, l)
	if len(l.Segments()) < 4 {
		t.Fatalf("only %d segments", len(l.Segments()))
	}
	for off := int64(0); off < 600; off += 37 {
		got := readAll(t, l, off)
		if got[0].BaseOffset() != off/3*3 {
			t.Fatalf("read at %d begins at %d", off, got[0].BaseOffset())
		}
	}
	e.reopen()
	l = e.log()
	if l.End() != 600 {
		t.Fatalf("end is %d after restart", l.End())
	}
	checkLog(t, l)
	readAll(t, l, 0)
	appendN(t, l, 200, 3)
	checkLog(t, l)
	if epoch, clean := e.m.CleanShutdown(); epoch != 7 || !clean {
		t.Fatalf("clean shutdown says %d, %v", epoch, clean)
	}
	must(t, e.m.Close(t.Context(), 8))
}

func TestReadBounds(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	appendN(t, l, 20, 5)
	size := batch(t, 5, record.Options{}).Size()
	for _, c := range []struct {
		off      int64
		maxBytes int
		limit    int64
		minOne   bool
		batches  int
		next     int64
	}{
		{0, 10 * size, 100, false, 10, 50},
		{7, 2*size + 1, 100, false, 2, 15},
		{7, 2*size - 1, 100, false, 1, 10},
		{7, 1, 100, false, 0, 7},
		{7, 1, 100, true, 1, 10},
		{7, 1, 9, true, 0, 7},
		{0, 10 * size, 12, true, 2, 10},
		{5, 10 * size, 5, true, 0, 5},
		{3, 10 * size, 10, true, 2, 10},
		{100, 10 * size, 100, true, 0, 100},
	} {
		s, err := l.Read(c.off, c.maxBytes, c.limit, c.minOne)
		must(t, err)
		if s.NextOffset != c.next || s.Len != int64(c.batches*size) {
			t.Errorf("%+v: %d bytes, next %d", c, s.Len, s.NextOffset)
		}
		read(t, s)
	}
	_, err := l.Read(101, 100, 101, true)
	wantCode(t, err, 1)
	_, err = l.Read(-1, 100, 101, true)
	wantCode(t, err, 1)
	must(t, e.m.Close(t.Context(), -1))
}
