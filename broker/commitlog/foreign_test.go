package commitlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// foreignDir writes a log directory with transactions, epochs and several segments, and closes it in order. want is what
// the log itself exports.
func foreignDir(t *testing.T) (dir string, want []*Export, stable int64) {
	t.Helper()
	e := &env{t: t, fs: DiskFS(), clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: testConfig()}
	dir = t.TempDir()
	o := e.options()
	o.Dir = dir
	m, err := OpenManager(o)
	must(t, err)
	must(t, m.LoadAll(context.Background(), func(string, protocol.UUID, int32) Config { return e.cfg }))
	l, err := m.Create("t", testID, 0, e.cfg)
	must(t, err)
	add := func(b record.Batch, epoch int32, origin Origin) {
		t.Helper()
		_, err := l.AppendAsLeader(b, epoch, origin)
		must(t, err)
	}
	for i := range 120 {
		epoch := int32(i / 20)
		add(idempotent(t, 5, 0, int32(i*3), 3, false), epoch, OriginClient)
		add(idempotent(t, 9, 0, int32(i*2), 2, true), epoch, OriginClient)
		if i%4 == 3 {
			add(record.EndTxnMarker{ProducerID: 9, TimestampMs: 1_700_000_000_000, Commit: i%8 == 7}.Batch(), epoch, OriginCoordinator)
		}
	}
	add(idempotent(t, 9, 0, 240, 2, true), 5, OriginClient)
	add(idempotent(t, 5, 0, 360, 3, false), 5, OriginClient)
	stable = l.LastStable(l.End())
	if stable != l.End()-5 {
		t.Fatalf("stable is %d, the log ends at %d", stable, l.End())
	}
	for from := int64(0); ; {
		ex, err := l.Export(from, stable)
		must(t, err)
		if ex == nil {
			break
		}
		want, from = append(want, ex), ex.Next
		ex.Log.Bytes = readSpan(t, ex.Log)
		ex.Close()
	}
	must(t, m.Close(context.Background(), 1))
	must(t, os.WriteFile(filepath.Join(dir, highWatermarkFile), fmt.Appendf(nil, "0\n1\nt 0 %d\n", stable+5), 0o600))
	return dir, want, stable
}

func readSpan(t *testing.T, s protocol.Span) []byte {
	t.Helper()
	b := make([]byte, s.Len)
	_, err := s.File.ReadAt(b, s.Off)
	must(t, err)
	return b
}

// openForeignLog opens partition 0 of t.
func openForeignLog(t *testing.T, dir string) *ForeignLog {
	t.Helper()
	d, err := OpenForeign(dir)
	must(t, err)
	if len(d.Partitions) != 1 || d.Partitions[0] != (ForeignPartition{"t", 0, testID}) {
		t.Fatal(d.Partitions)
	}
	f, err := d.Log(d.Partitions[0], testConfig().IndexIntervalBytes, 1_700_000_000_000)
	must(t, err)
	return f
}

// TestForeignLog: what is read from a stopped broker's folder is what that broker would have exported, and the last segment up
// to the last stable offset. Nothing in the folder changes.
func TestForeignLog(t *testing.T) {
	dir, want, stable := foreignDir(t)
	before := treeOf(t, dir)
	f := openForeignLog(t, dir)
	if f.End != stable || f.LogStart != 0 || f.LeftOut != 5 {
		t.Fatalf("[%d, %d) and %d left out, stable is %d", f.LogStart, f.End, f.LeftOut, stable)
	}
	next, aborted := int64(0), 0
	for i := 0; ; i++ {
		got, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		log := readSpan(t, got.Log)
		if got.Base != next {
			t.Fatalf("segment %d begins at %d, the one before ended at %d", i, got.Base, next)
		}
		next, aborted = got.Next, aborted+len(got.TxnIndex)
		got.Close()
		if i >= len(want) {
			continue
		}
		w := want[i]
		ps, err := decodeProducers(got.ProducerSnapshot, "")
		must(t, err)
		wps, err := decodeProducers(w.ProducerSnapshot, "")
		must(t, err)
		if got.Base != w.Base || got.Next != w.Next || got.FirstTimestamp != w.FirstTimestamp || got.MaxTimestamp != w.MaxTimestamp || !slices.Equal(got.Epochs, w.Epochs) {
			t.Errorf("segment %d: %+v, not %+v", i, got, w)
		}
		if !bytes.Equal(log, w.Log.Bytes) || !bytes.Equal(got.OffsetIndex, w.OffsetIndex) || !bytes.Equal(got.TimeIndex, w.TimeIndex) || !bytes.Equal(got.TxnIndex, w.TxnIndex) {
			t.Errorf("segment %d: bytes differ", i)
		}
		if !slices.Equal(ps.infos(), wps.infos()) {
			t.Errorf("segment %d: producers %v, not %v", i, ps.infos(), wps.infos())
		}
	}
	if next != stable || aborted == 0 || len(want) < 5 {
		t.Errorf("ended at %d of %d, %d bytes of aborted transactions, %d segments", next, stable, aborted, len(want))
	}
	if after := treeOf(t, dir); after != before {
		t.Error("the folder has changed")
	}
}

// treeOf lists names, sizes and contents.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		out.WriteString(p + " " + string(b) + "\n")
		return err
	}))
	return out.String()
}

// drain reads to the end and returns the claimed end and the records.
func drain(f *ForeignLog) (next int64, records int64, err error) {
	for {
		e, err := f.Next()
		if errors.Is(err, io.EOF) {
			return next, records, nil
		}
		if err != nil {
			return next, records, err
		}
		next = e.Next
		b := make([]byte, e.Log.Len)
		_, err = e.Log.File.ReadAt(b, 0)
		for err == nil && len(b) > 0 {
			var one record.Batch
			if one, b, err = record.Next(b); err == nil {
				records += int64(one.Count())
			}
		}
		e.Close()
		if err != nil {
			return next, records, err
		}
	}
}

// edit changes a file.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, change(b), 0o600))
}

// segmentFiles are the log files of partition 0 of t, in order.
func segmentFiles(t *testing.T, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "t-0", "*.log"))
	must(t, err)
	return names
}

type foreignDamage struct {
	name    string
	damage  func(t *testing.T, dir string)
	refuse  string // "" when it is taken
	lost    bool   // less than all records
	missing bool   // some of what was committed
}

var foreignDamages = []foreignDamage{
	{"torn tail", func(t *testing.T, dir string) {
		edit(t, slices.Max(segmentFiles(t, dir)), func(b []byte) []byte { return append(b, b[:40]...) })
	}, "", false, false},
	{"reserved room", func(t *testing.T, dir string) {
		edit(t, slices.Max(segmentFiles(t, dir)), func(b []byte) []byte { return append(b, make([]byte, 4096)...) })
	}, "", false, false},
	{"no indexes", func(t *testing.T, dir string) {
		for _, n := range segmentFiles(t, dir) {
			must(t, os.Remove(strings.TrimSuffix(n, ".log")+".index"))
		}
	}, "", false, false},
	{"no epochs", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "t-0", epochFile))) }, "", false, false},
	{"damage near the end", func(t *testing.T, dir string) {
		edit(t, slices.Max(segmentFiles(t, dir)), func(b []byte) []byte { b[100] ^= 1; return b })
	}, "", true, true},
	{"batch gone by compaction", func(t *testing.T, dir string) {
		edit(t, segmentFiles(t, dir)[1], func(b []byte) []byte {
			one, rest, err := record.Next(b)
			must(t, err)
			_, rest, err = record.Next(rest)
			must(t, err)
			return append(slices.Clone([]byte(one)), rest...)
		})
	}, "", true, false},
	{"high watermark", func(t *testing.T, dir string) {
		edit(t, filepath.Join(dir, highWatermarkFile), func([]byte) []byte { return []byte("0\n1\nt 0 50\n") })
	}, "", true, false},
	{"wrong byte", func(t *testing.T, dir string) {
		edit(t, segmentFiles(t, dir)[1], func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	}, "at byte", false, false},
	{"old format", func(t *testing.T, dir string) {
		edit(t, segmentFiles(t, dir)[1], func(b []byte) []byte { b[16] = 1; return b })
	}, "before Kafka 0.11", false, false},
	{"cleaning under way", func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "t-0", "00000000000000000000.log.swap"), nil, 0o600))
	}, "compaction that a crash ended", false, false},
	{"damaged checkpoint", func(t *testing.T, dir string) {
		edit(t, filepath.Join(dir, highWatermarkFile), func([]byte) []byte { return []byte("x") })
	}, "no header", false, false},
	{"no log directory", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, metaFile))) }, "no such file", false, false},
}

// TestForeignDamage: what a crash or a disk left is judged as the broker itself would, where that loses nothing, and refused
// where it would.
func TestForeignDamage(t *testing.T) {
	for _, tc := range foreignDamages {
		t.Run(tc.name, func(t *testing.T) {
			dir, _, stable := foreignDir(t)
			_, whole, err := drain(openForeignLog(t, dir))
			must(t, err)
			tc.damage(t, dir)
			d, err := OpenForeign(dir)
			var f *ForeignLog
			if err == nil {
				f, err = d.Log(d.Partitions[0], 200, 0)
			}
			var next, records int64
			if err == nil {
				next, records, err = drain(f)
			}
			if tc.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refuse) {
					t.Fatalf("error is %v", err)
				}
				return
			}
			must(t, err)
			if (records < whole) != tc.lost || (f.Missing > 0) != tc.missing || next != min(f.End, stable) {
				t.Errorf("%d of %d records up to %d of %d, %d left out, %d missing, stable %d", records, whole, next, f.End, f.LeftOut, f.Missing, stable)
			}
		})
	}
}

const lockEnv = "VARVE_TEST_HOLD_LOCK"

// TestForeignLocked: a directory that a running broker holds is refused. The broker is this test in a process of its own, since
// a process does not see its own locks.
func TestForeignLocked(t *testing.T) {
	if dir := os.Getenv(lockEnv); dir != "" {
		_, err := OpenManager(ManagerOptions{FS: DiskFS(), Dir: dir, NodeID: 1, ClusterID: "c"})
		must(t, err)
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	dir, _, _ := foreignDir(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestForeignLocked$")
	cmd.Env = append(os.Environ(), lockEnv+"="+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line, err)
	}
	var locked *LockedError
	if _, err := OpenForeign(dir); !errors.As(err, &locked) {
		t.Fatal(err)
	}
}

// TestForeignBatches: a folder is read for what it says from its newest snapshot on, and up to the high watermark.
func TestForeignBatches(t *testing.T) {
	dir, _, stable := foreignDir(t)
	d, err := OpenForeign(dir)
	must(t, err)
	read := func() (first, next int64, n int) {
		t.Helper()
		first = -1
		end, err := d.Batches(d.Partitions[0], func(b record.Batch) error {
			if first < 0 {
				first = b.BaseOffset()
			}
			next, n = b.NextOffset(), n+1
			return nil
		})
		if err != nil || end != next {
			t.Fatalf("up to %d, the last batch ends at %d: %v", end, next, err)
		}
		return first, next, n
	}
	first, next, all := read()
	if first != 0 || next != stable+5 {
		t.Fatalf("%d to %d", first, next)
	}
	batch := idempotent(t, 5, 0, 0, 3, false)
	for _, name := range []string{"00000000000000000090-0000000001", "00000000000000000012-0000000000", "x", "0000000000000000009x-0000000001"} {
		must(t, os.WriteFile(filepath.Join(dir, "t-0", name+kraftSnapshotSuffix), batch, 0o600))
	}
	first, next, fewer := read()
	if first != 0 || next != stable+5 || fewer >= all {
		t.Fatalf("%d to %d, %d batches of %d", first, next, fewer, all)
	}
	must(t, os.WriteFile(filepath.Join(dir, "t-0", "00000000000000000090-0000000001"+kraftSnapshotSuffix), batch[:len(batch)-1], 0o600))
	var bad *protocol.CorruptionError
	if _, err := d.Batches(d.Partitions[0], func(record.Batch) error { return nil }); !errors.As(err, &bad) {
		t.Fatalf("a snapshot that is cut short: %v", err)
	}
}
