package commitlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// wantCorrupt: what is parsed from disk gives a value or says that it is
// corrupt, nothing else.
func wantCorrupt(t *testing.T, err error) {
	t.Helper()
	var corrupt *protocol.CorruptionError
	var foreign *ForeignError
	if err != nil && !errors.As(err, &corrupt) && !errors.As(err, &foreign) {
		t.Fatalf("%T: %v", err, err)
	}
}

func FuzzCheckpoints(f *testing.F) {
	f.Add([]byte("0\n2\nt 0 5\nt 1 6\n"))
	f.Add([]byte("0\n2\n0 0\n3 17\n"))
	f.Add([]byte("0\n0\n"))
	f.Add([]byte("0\n-1\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		offsets, err := decodeOffsets(data, "x")
		wantCorrupt(t, err)
		if err == nil {
			again, err := decodeOffsets(encodeOffsets(offsets), "x")
			must(t, err)
			if !maps.Equal(offsets, again) {
				t.Fatalf("%v became %v", offsets, again)
			}
		}
		epochs, err := decodeEpochs(data, "x")
		wantCorrupt(t, err)
		if err == nil {
			again, err := decodeEpochs(encodeEpochs(epochs), "x")
			must(t, err)
			if !slices.Equal(epochs, again) {
				t.Fatalf("%v became %v", epochs, again)
			}
		}
	})
}

func FuzzSmallFiles(f *testing.F) {
	f.Add([]byte("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=" + testID.String() + "\n"))
	f.Add([]byte("#\nversion=0\n"))
	f.Add([]byte("version: 0\ntopic_id: " + testID.String() + "\n"))
	f.Add([]byte(`{"version":0,"brokerEpoch":12}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodeProperties(data, "x")
		wantCorrupt(t, err)
		if err == nil && !p.directoryID.IsZero() {
			again, err := decodeProperties(p.encode(), "x")
			must(t, err)
			if again.nodeID != p.nodeID || again.directoryID != p.directoryID {
				t.Fatalf("%+v became %+v", p, again)
			}
		}
		_, err = decodePartition(data, "x")
		wantCorrupt(t, err)
		decodeCleanShutdown(data)
		parseFolder(string(data))
		parseFileName(string(data))
	})
}

func FuzzProducerSnapshot(f *testing.F) {
	ps := newProducers()
	ps.apply(idempotent(f, 7, 3, 10, 4, true), endMarker{}, 99)
	f.Add(ps.encode())
	f.Add(newProducers().encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeProducers(data, "x")
		wantCorrupt(t, err)
		if err == nil && len(got.byID)*snapshotEntryBytes+snapshotHeaderBytes == len(data) {
			_, err := decodeProducers(got.encode(), "x")
			must(t, err)
		}
	})
}

// smallLog is a folder with two sealed segments and an active one.
func smallLog(t testing.TB) (*MemFS, Config) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1500, 100
	fs := NewMemFS()
	e := newEnv(t, fs, cfg)
	l := e.log()
	for i := range 14 {
		_, err := l.AppendAsLeader(idempotent(t, 1, 0, int32(i*5), 5, true), 0, OriginClient)
		must(t, err)
		if i%3 == 2 {
			_, err = marker(t, l, 1, 0, 0, false)
			must(t, err)
		}
	}
	must(t, e.m.Close(context.Background(), 1))
	return fs, cfg
}

// FuzzIndexes puts any bytes in place of an index file: reads answer with what
// is right or with an error, and nothing panics.
func FuzzIndexes(f *testing.F) {
	fs, _ := smallLog(f)
	for which, suffix := range []string{indexSuffix, timeSuffix, txnSuffix} {
		data, err := readFile(fs, testDir+"/t-0/"+fileName(0, suffix), 1<<20)
		must(f, err)
		f.Add(which, data)
		f.Add(which, data[:len(data)-1])
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		fs, cfg := smallLog(t)
		suffix := []string{indexSuffix, timeSuffix, txnSuffix}[uint(which)%3]
		put(t, fs, testDir+"/t-0/"+fileName(0, suffix), string(data))
		e := newEnv(t, fs, cfg)
		l := e.log()
		for off := int64(0); off < l.End(); off += 3 {
			s, err := l.Read(off, 400, l.End(), true)
			if err == nil && s.Len > 0 {
				b, _, err := record.Next(read(t, s))
				if err == nil && b.CheckCRC() == nil && suffix != indexSuffix && (b.BaseOffset() > off || b.LastOffset() < off) {
					t.Fatalf("%s at %d", b, off)
				}
			}
		}
		_, _, _ = l.OffsetForTimestamp(1_700_000_000_000)
		_, _ = l.AbortedIn(0, l.End())
		_, _, _ = l.MaxTimestamp()
		if ex, err := l.Export(7, l.End()); err == nil && ex != nil {
			ex.Close()
		}
		_ = l.TruncateTo(11)
		_ = e.m.Close(context.Background(), 1)
	})
}

// FuzzRecovery puts any bytes in place of the active segment: what is left is a
// valid prefix, and appending goes on.
func FuzzRecovery(f *testing.F) {
	fs, cfg := smallLog(f)
	e := newEnv(f, fs, cfg)
	base := e.log().active().base
	must(f, e.m.Close(context.Background(), 1))
	path := testDir + "/t-0/" + fileName(base, logSuffix)
	good, err := readFile(fs, path, 1<<20)
	must(f, err)
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(append(slices.Clone(good), make([]byte, 5000)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		fs, cfg := smallLog(t)
		put(t, fs, path, string(data))
		must(t, fs.Remove(testDir+"/"+cleanShutdownFile))
		must(t, fs.Remove(testDir+"/"+recoveryPointFile))
		e := &env{t: t, fs: fs, clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: cfg}
		e.open()
		l := e.log()
		kept, err := readFile(fs, path, 1<<30)
		must(t, err)
		if !bytes.HasPrefix(data, kept) {
			t.Fatal("recovery changed what was there")
		}
		next := int64(0)
		for rest := kept; ; {
			b, r, err := record.Next(rest)
			if err == io.EOF {
				break
			}
			must(t, err)
			must(t, b.CheckCRC())
			next, rest = b.NextOffset(), r
		}
		if len(kept) > 0 && next != l.End() {
			t.Fatalf("the log ends at %d, its last batch at %d", l.End(), next)
		}
		if l.End() < 1<<40 {
			appendN(t, l, 2, 1)
		}
		must(t, e.m.Close(context.Background(), 1))
	})
}
