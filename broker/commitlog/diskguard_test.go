package commitlog

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// smallDiskFS is a memory file system that says how much room it has.
type smallDiskFS struct {
	*MemFS
	total uint64
	avail atomic.Uint64
}

func (f *smallDiskFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: f.total, AvailBytes: f.avail.Load()}, nil
}

// smallDisk is a log directory on a disk of a GiB, with two logs.
type smallDisk struct {
	t    *testing.T
	fs   *smallDiskFS
	m    *Manager
	rec  *event.Recorder
	a, b *Log
}

func newSmallDisk(t *testing.T) *smallDisk {
	d := &smallDisk{t: t, fs: &smallDiskFS{MemFS: NewMemFS(), total: 1 << 30}, rec: &event.Recorder{}}
	d.fs.avail.Store(1 << 29)
	var err error
	d.m, err = OpenManager(ManagerOptions{FS: d.fs, Dir: "logs", NodeID: 1, ClusterID: "c", DiskReserveBytes: AutoReserve, Events: d.rec.Emit, CheckpointIntervalMs: 3_600_000})
	must(t, err)
	t.Cleanup(func() { must(t, d.m.Close(context.Background(), -1)) })
	for name, l := range map[string]**Log{"a": &d.a, "b": &d.b} {
		*l, err = d.m.Create(name, testID, 0, testConfig())
		must(t, err)
	}
	return d
}

// room sets how much the disk has left, and has the guard look at the next append.
func (d *smallDisk) room(bytes int64) {
	d.fs.avail.Store(uint64(bytes))
	d.m.disk.unchecked.Store(1 << 40)
}

func (d *smallDisk) append(l *Log) error {
	_, err := l.AppendAsLeader(batch(d.t, 1, record.Options{}), 0, OriginClient)
	return err
}

// TestAppendsKeepTheReserve: below the reserve appends are refused and told of once; with room again they go on.
func TestAppendsKeepTheReserve(t *testing.T) {
	d := newSmallDisk(t)
	if want := int64(1<<30) / reserveShare; d.m.disk.reserveBytes != want {
		t.Fatalf("reserve of %d bytes, want %d", d.m.disk.reserveBytes, want)
	}
	must(t, d.append(d.a))
	d.room(1 << 20)
	for range 3 {
		err := d.append(d.a)
		wantCode(t, err, protocol.KafkaStorageError)
		var room *NoRoomError
		if !errors.As(err, &room) || room.Level != DiskIsFull {
			t.Fatalf("%#v", err)
		}
	}
	if d.rec.Count("log_disk_full") != 1 || d.m.Offline() != nil {
		t.Fatalf("told %d times, offline: %v", d.rec.Count("log_disk_full"), d.m.Offline())
	}
	d.room(1 << 29)
	must(t, d.append(d.a))
	if d.a.End() != 2 || d.rec.Count("log_disk_room") != 1 {
		t.Fatalf("end %d, told of room %d times", d.a.End(), d.rec.Count("log_disk_room"))
	}
}

// TestThoseThatWaitForTheTierGoFirst: on a tight disk partitions with closed segments that are not in the tier take nothing,
// before the disk is full; all others go on, and so do they when their segments are up.
func TestThoseThatWaitForTheTierGoFirst(t *testing.T) {
	d := newSmallDisk(t)
	var freed atomic.Int32
	d.m.OnDiskShort(func() { freed.Add(1) })
	reserve := d.m.disk.reserveBytes
	must(t, d.append(d.a))
	must(t, d.append(d.b))
	d.a.Settled(0)
	d.room(d.m.disk.tightBytes - 1)
	must(t, d.append(d.a)) // nothing of it is closed
	must(t, d.a.Roll())
	d.room(reserve + 1)
	err := d.append(d.a)
	wantCode(t, err, protocol.KafkaStorageError)
	if !strings.Contains(err.Error(), "waits for its closed segments to be uploaded") {
		t.Fatal(err)
	}
	must(t, d.append(d.b))
	if d.rec.Count("log_disk_short") != 1 || d.rec.Count("log_disk_full") != 0 || freed.Load() == 0 || d.m.DiskShortBytes() == 0 {
		t.Fatalf("told %d times, %d full, woken %d times, short by %d", d.rec.Count("log_disk_short"), d.rec.Count("log_disk_full"), freed.Load(), d.m.DiskShortBytes())
	}
	d.a.Settled(d.a.Segments()[1].Base)
	must(t, d.append(d.a))
	d.a.Settled(0)
	wantCode(t, d.append(d.a), protocol.KafkaStorageError)
	d.a.Settled(-1) // copying was switched off: as an untiered one
	must(t, d.append(d.a))
	d.room(reserve - 1)
	wantCode(t, d.append(d.a), protocol.KafkaStorageError)
	wantCode(t, d.append(d.b), protocol.KafkaStorageError)
	d.a.Settled(0)
	d.room(d.m.disk.tightBytes)
	must(t, d.append(d.a))
	must(t, d.append(d.b))
	d.room(d.m.disk.shortBytes)
	must(t, d.append(d.b))
	if d.rec.Count("log_disk_room") != 1 || d.m.DiskShortBytes() != 0 {
		t.Fatalf("%+v", d.rec.All())
	}
}

// TestGuardLooksByItself: a disk that others fill or empty is noticed without an append.
func TestGuardLooksByItself(t *testing.T) {
	d := newSmallDisk(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, c := range []struct {
		room int64
		told string
	}{{d.m.disk.shortBytes - 1, "log_disk_short"}, {1, "log_disk_full"}, {1 << 29, "log_disk_room"}} {
		d.fs.avail.Store(uint64(c.room))
		if _, err := d.rec.Wait(ctx, c.told); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDiskThatSaysItHasRoom: with a quota, or without inodes, a look does not tell; it is not told of with each append.
func TestFullDiskThatSaysItHasRoom(t *testing.T) {
	d := newSmallDisk(t)
	for range 10 {
		wantCode(t, d.a.diskError("append", syscall.ENOSPC), protocol.KafkaStorageError)
		must(t, d.append(d.b)) // what can be written is
	}
	if d.rec.Count("log_disk_full") != 1 || d.rec.Count("log_disk_room") != 0 {
		t.Fatalf("%+v", d.rec.All())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := d.rec.Wait(ctx, "log_disk_room"); err != nil {
		t.Fatal(err)
	}
}

// TestReserveOfSmallDisk: the reserve never takes more than an eighth of the disk, the bands above it are no larger.
func TestReserveOfSmallDisk(t *testing.T) {
	for total, want := range map[int64]int64{8 << 20: 1 << 20, 128 << 20: 16 << 20, 1 << 30: (1 << 30) / 50, 1 << 40: 1 << 30} {
		fs := &smallDiskFS{MemFS: NewMemFS(), total: uint64(total)}
		g := newDiskGuard(fs, "d", AutoReserve, time.Now, nil)
		if g.reserveBytes != want || g.tightBytes <= want || g.tightBytes > 2*want || g.shortBytes <= g.tightBytes || g.shortBytes > 4*want {
			t.Errorf("a disk of %d bytes keeps %d, want %d; tight %d, short %d", total, g.reserveBytes, want, g.tightBytes, g.shortBytes)
		}
		g = newDiskGuard(fs, "d", total/2, time.Now, nil)
		if g.shortBytes > total*3/5 {
			t.Errorf("a disk of %d bytes, half of it kept, is short below %d", total, g.shortBytes)
		}
	}
}

// TestDiskState: the room and the steps as the guard has them.
func TestDiskState(t *testing.T) {
	d := newSmallDisk(t)
	for room, want := range map[int64]DiskLevel{1 << 29: DiskRoomy, d.m.disk.shortBytes - 1: DiskIsShort, d.m.disk.tightBytes - 1: DiskIsTight, d.m.disk.reserveBytes - 1: DiskIsFull} {
		d.room(room)
		_ = d.append(d.a) // refused at the last level
		st := d.m.Disk()
		if st.RoomBytes != room || st.Level != want || st.ReserveBytes <= 0 || st.TightBytes <= st.ReserveBytes || st.ShortBytes <= st.TightBytes {
			t.Errorf("%d bytes: %+v, want %v", room, st, want)
		}
	}
}
