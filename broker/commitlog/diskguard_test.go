package commitlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// smallDiskFS is a memory file system that says how much room it has.
type smallDiskFS struct {
	*MemFS
	total, avail uint64
}

func (f *smallDiskFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: f.total, AvailBytes: f.avail, UsedBytes: f.total - f.avail}, nil
}

// TestAppendsKeepTheReserve: below the reserve appends are refused and told of once; with room again they go on.
func TestAppendsKeepTheReserve(t *testing.T) {
	fsys := &smallDiskFS{MemFS: NewMemFS(), total: 1 << 30, avail: 1 << 29}
	rec := &event.Recorder{}
	m, err := OpenManager(ManagerOptions{FS: fsys, Dir: "logs", NodeID: 1, ClusterID: "c", DiskReserveBytes: AutoReserve, Events: rec.Emit})
	must(t, err)
	defer m.Close(t.Context(), -1)
	if want := int64(1<<30) / reserveShare; m.disk.reserveBytes != want {
		t.Fatalf("reserve of %d bytes, want %d", m.disk.reserveBytes, want)
	}
	l, err := m.Create("t", testID, 0, testConfig())
	must(t, err)
	big := func() error {
		_, err := l.AppendAsLeader(batch(t, 1, record.Options{}), 0, OriginClient)
		return err
	}
	must(t, big())
	fsys.avail = 1 << 20
	m.disk.unchecked.Store(m.disk.reserveBytes) // as if so much had been appended since the last look
	for range 3 {
		wantCode(t, big(), protocol.KafkaStorageError)
	}
	if rec.Count("log_disk_full") != 1 || m.Offline() != nil {
		t.Fatalf("told %d times, offline: %v", rec.Count("log_disk_full"), m.Offline())
	}
	fsys.avail = 1 << 29
	must(t, big())
	if l.End() != 2 || rec.Count("log_disk_room") != 1 {
		t.Fatalf("end %d, told of room %d times", l.End(), rec.Count("log_disk_room"))
	}
}

// TestReserveOfSmallDisk: the reserve never takes more than an eighth of the disk.
func TestReserveOfSmallDisk(t *testing.T) {
	for total, want := range map[uint64]int64{8 << 20: 1 << 20, 128 << 20: 16 << 20, 1 << 30: (1 << 30) / 50, 1 << 40: 1 << 30} {
		g := newDiskGuard(&smallDiskFS{MemFS: NewMemFS(), total: total, avail: total}, "d", AutoReserve, nil)
		if g.reserveBytes != want {
			t.Errorf("a disk of %d bytes keeps %d, want %d", total, g.reserveBytes, want)
		}
	}
}
