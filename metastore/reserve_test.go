package metastore

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/protocol/event"
)

// TestReserveIsSpentOnceAndFilledAgain: what fails for lack of room is tried once more with the reserve's room, and the
// reserve comes back when the disk has plenty.
func TestReserveIsSpentOnceAndFilledAgain(t *testing.T) {
	rec := &event.Recorder{}
	dir := t.TempDir()
	r := &reserve{fs: vfs.Default, dir: dir, events: rec.Emit}
	held := func() bool { _, err := os.Stat(filepath.Join(dir, reserveFile)); return err == nil }
	r.fill()
	if !held() {
		t.Fatal("no reserve on a disk with room")
	}
	tries := 0
	write := func() error {
		if tries++; held() {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := (roomyLog{reserve: r}).again(write); err != nil || tries != 2 {
		t.Fatalf("%v after %d tries", err, tries)
	}
	if held() || rec.Count(StorageTrouble{}.Name()) != 1 {
		t.Fatalf("reserve held: %v, told %d times", held(), rec.Count(StorageTrouble{}.Name()))
	}
	full := func() error { tries++; return syscall.ENOSPC }
	if err := (roomyLog{reserve: r}).again(full); err != syscall.ENOSPC || tries != 4 || rec.Count(StorageTrouble{}.Name()) != 1 {
		t.Fatalf("without a reserve: %v after %d tries", err, tries)
	}
	if r.fill(); !held() {
		t.Fatal("the reserve did not come back")
	}
}
