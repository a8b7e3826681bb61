package main

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/protocol/record"
)

// fixture writes a partition folder by hand, so that a dump does not only agree with the code that wrote it.
func fixture(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	b := record.NewBuilder(record.Options{BaseOffset: 100, LeaderEpoch: 3})
	add := func(ts int64, key, value []byte, headers ...record.Header) {
		if err := b.Add(ts, key, value, headers...); err != nil {
			t.Fatal(err)
		}
	}
	batch := func() []byte {
		out, err := b.Batch()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{}, out...)
	}
	add(1_700_000_000_000, []byte("k"), []byte("v1"), record.Header{Key: "h", Value: []byte("\x00")}, record.Header{Key: "n"})
	add(1_700_000_000_001, nil, []byte("two\nlines"))
	add(1_700_000_000_002, []byte("gone"), nil)
	log := batch()
	second := len(log)
	b.Reset(record.Options{BaseOffset: 103, LeaderEpoch: 4, Producer: &record.Producer{ID: 7, Epoch: 1, BaseSequence: 5}, Transactional: true})
	add(1_700_000_000_010, []byte("t"), []byte("x"))
	log = append(log, batch()...)
	log = append(log, record.EndTxnMarker{BaseOffset: 104, LeaderEpoch: 4, TimestampMs: 1_700_000_000_020, ProducerID: 7, ProducerEpoch: 1, CoordinatorEpoch: 2}.Batch()...)

	u32, u64 := binary.BigEndian.AppendUint32, binary.BigEndian.AppendUint64
	index := make([]byte, 5*offsetEntryBytes) // zeros are set aside
	copy(index, u32(u32(nil, 3), uint32(second)))
	times := u32(u64(u32(u64(nil, 1_700_000_000_002), 2), 1_700_000_000_020), 4)
	txn := u64(u64(u64(u64(make([]byte, 2), 7), 103), 104), 105)
	entry := u64(u32(u64(u32(u64(u32(binary.BigEndian.AppendUint16(u64(nil, 7), 1), 5), 103), 0), 1_700_000_000_010), 2), 1<<64-1)
	state := append(u32(nil, 1), entry...)
	snapshot := append(u32([]byte{0, 1}, crc32.Checksum(state, crc32.MakeTable(crc32.Castagnoli))), state...)
	for name, data := range map[string][]byte{
		"00000000000000000100.log": log, "00000000000000000100.index": index, "00000000000000000100.timeindex": times,
		"00000000000000000100.txnindex": txn, "00000000000000000105.snapshot": snapshot, "leader-epoch-checkpoint": []byte("0\n2\n3 100\n4 103\n"),
		"partition.metadata": []byte("version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestDumpGolden(t *testing.T) {
	dir := fixture(t)
	for name, args := range map[string][]string{"dump.txt": {"dump"}, "dump-deep.txt": {"dump", "--deep"}} {
		golden(t, name, strings.ReplaceAll(ok(t, append(args, files(t, dir)...)...), filepath.ToSlash(dir), "DIR"))
	}
	seg := filepath.Join("..", "..", "tiering", "testdata", "segment-v1.seg")
	golden(t, "dump-object.txt", ok(t, "dump", "--deep", seg))
	golden(t, "dump-snapshot.txt", ok(t, "dump", "--deep", filepath.Join("..", "..", "tiering", "testdata", "snapshot-v1.snap")))
}

// TestDumpSnapshotDamage: any byte of a snapshot in the bucket that turned is told.
func TestDumpSnapshotDamage(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("..", "..", "tiering", "testdata", "snapshot-v1.snap"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "00000000000000001234")
	for at := 8; at < len(good); at += 7 {
		b := append([]byte{}, good...)
		b[at] ^= 0x20
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, errs := shell(t, "dump", path); code == exitOK || !strings.Contains(errs, "snapshot") {
			t.Fatalf("byte %d: exit %d:\n%s%s", at, code, out, errs)
		}
	}
}

// TestDumpNamesDamage: one flipped or missing byte in any file is told with its place, and with exit code 1.
func TestDumpNamesDamage(t *testing.T) {
	for _, tc := range []struct {
		file  string
		at    int // byte that is changed; -1 cuts the last one off
		to    byte
		place string
	}{
		{"00000000000000000100.log", 70, 0xff, "byte 0"},
		{"00000000000000000100.log", 16, 9, "byte 0"},
		{"00000000000000000100.log", -1, 0, "is cut off after"},
		{"00000000000000000100.index", 7, 1, "entry 0"},
		{"00000000000000000100.index", 3, 7, "entry 0"},
		{"00000000000000000100.index", -1, 0, "no whole entry of 8"},
		{"00000000000000000100.timeindex", 12, 0x80, "entry 1"},
		{"00000000000000000100.txnindex", 1, 1, "entry 0"},
		{"00000000000000000100.txnindex", 10, 1, "entry 0"},
		{"00000000000000000105.snapshot", 20, 0xff, "CRC32C"},
		{"00000000000000000105.snapshot", -1, 0, "do not fit"},
		{"00000000000000000105.snapshot", 1, 2, "version 2"},
		{"leader-epoch-checkpoint", 0, '1', "line 1"},
		{"leader-epoch-checkpoint", 2, '3', "line 2"},
		{"leader-epoch-checkpoint", 10, '2', "line 4"},
		{"partition.metadata", 9, '1', "version"},
		{"partition.metadata", 22, '*', "topic_id"},
	} {
		dir := fixture(t)
		path := filepath.Join(dir, tc.file)
		damage(t, path, tc.at, tc.to)
		code, out, errs := shell(t, "dump", path)
		if code != exitRuntime || !strings.Contains(errs, tc.place) || !strings.Contains(errs, tc.file) {
			t.Errorf("%s byte %d: exit %d, want %q:\n%s%s", tc.file, tc.at, code, tc.place, out, errs)
		}
	}
}

// damage changes one byte of a file, or cuts the last one off.
func damage(t *testing.T, path string, at int, to byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		data = data[:len(data)-1]
	} else if data[at] == to {
		t.Fatalf("%s has %d there already", path, to)
	} else {
		data[at] = to
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDumpNamesDamageOfObjects(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("..", "..", "tiering", "testdata", "segment-v1.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, len(whole) / 3, len(whole) / 2, len(whole) - 30, len(whole) - 1, -1} {
		path := filepath.Join(t.TempDir(), "x.seg")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if at >= 0 {
			damage(t, path, at, whole[at]^0x55)
		} else {
			damage(t, path, at, 0)
		}
		if code, out, errs := shell(t, "dump", path); code != exitRuntime || !strings.Contains(errs, "corruption in ") {
			t.Errorf("byte %d of %d: exit %d\n%s%s", at, len(whole), code, out, errs)
		}
	}
}

func TestDumpOfWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	strange := filepath.Join(dir, "strange.bin")
	if err := os.WriteFile(strange, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{strange, dir, filepath.Join(dir, "none.log")} {
		if code, _, errs := shell(t, "dump", path); code != exitRuntime || !strings.Contains(errs, path) {
			t.Errorf("%s: exit %d %s", path, code, errs)
		}
	}
}

// TestTierListAndDumpOfObjects looks at the tier that a small demonstration left behind.
func TestTierListAndDumpOfObjects(t *testing.T) {
	source := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		text := strings.Repeat("line of "+name+"\n", 100_000)
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	work := filepath.Join(t.TempDir(), "work")
	ok(t, "demo", "--source", source, "--dir", work)
	url := "dir://" + filepath.ToSlash(filepath.Join(work, "tier"))
	out := ok(t, "tier", "ls", url)
	var key string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && strings.HasSuffix(f[len(f)-1], ".seg") {
			key = f[len(f)-1]
		}
	}
	if key == "" || !strings.Contains(out, "owner") {
		t.Fatal(out)
	}
	if out := ok(t, "tier", "ls", url, "--summary", "--format", "json"); !strings.Contains(out, `"kind": "segment"`) || strings.Contains(out, key) {
		t.Error(out)
	}
	if out := ok(t, "tier", "ls", url, "--format", "json"); !strings.Contains(out, `{"key":"`+key+`"`) {
		t.Error(out)
	}
	if out := ok(t, "tier", "ls", url, "--under", "nothing"); out != "no objects\n" {
		t.Error(out)
	}
	if out := ok(t, "dump", "--tier", url, key); !strings.Contains(out, "topic "+demoTopic+" ") {
		t.Error(out)
	}
	if out := ok(t, "dump", filepath.Join(work, "tier", filepath.FromSlash(key)+".obj")); !strings.Contains(out, "topic "+demoTopic+" ") {
		t.Error(out)
	}
	if code, _, errs := shell(t, "dump", "--tier", url, key+"x"); code != exitRuntime || !strings.Contains(errs, "not found") {
		t.Error(code, errs)
	}
	logs, err := filepath.Glob(filepath.Join(work, "log", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if out := ok(t, append([]string{"dump"}, logs...)...); !strings.Contains(out, "next offset ") {
		t.Error(out)
	}
}
