package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// crashTest plays one operation on a Dir, cuts it off before its n-th change of the
// file system for each n, and looks at what a new process finds.
type crashTest struct {
	setup func(t *testing.T, d *Dir)       // state before the operation
	op    func(t *testing.T, d *Dir) error // the operation that is cut off
	// check sees the store after the crash; acked says whether op had returned nil.
	check func(t *testing.T, d *Dir, acked bool)
}

var errCrashed = errors.New("crashed")

func (c crashTest) run(t *testing.T) {
	for _, lost := range []struct {
		name    string
		percent int
	}{{"power", 0}, {"half", 50}, {"process", 100}} {
		steps := 0
		for cut := 0; ; cut++ {
			t.Run(fmt.Sprintf("%s/%d", lost.name, cut), func(t *testing.T) {
				steps = c.cutAt(t, cut, lost.percent)
			})
			if t.Failed() || cut > steps {
				break
			}
		}
		if steps < 3 {
			t.Fatalf("only %d steps: the injector does not see the operation", steps)
		}
	}
}

// cutAt crashes before step number cut and returns how many steps there were.
func (c crashTest) cutAt(t *testing.T, cut, percent int) int {
	mem := vfs.NewCrashableMem()
	var after *vfs.MemFS
	armed, step := false, 0
	crash := func() {
		after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(cut), 1))})
	}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if after != nil {
			return errCrashed
		}
		if step++; step > cut {
			crash()
			return errCrashed
		}
		return nil
	}))
	d := NewDir(fs, "/data/tier")
	if c.setup != nil {
		c.setup(t, d)
	}
	armed = true
	err := c.op(t, d)
	armed = false
	acked := err == nil
	if after == nil {
		crash() // right behind the reply
	} else if acked && percent == 0 {
		// Steps that may fail without failing the operation are clean-up only.
		t.Logf("cut at %d did not fail the operation", cut)
	}
	next := NewDir(after, "/data/tier")
	c.check(t, next, acked)
	checkWritable(t, next, after)
	return step
}

// checkWritable puts an object with the new process, cuts the power at once, and
// looks for the object and for leftovers.
func checkWritable(t *testing.T, d *Dir, mem *vfs.MemFS) {
	t.Helper()
	mustPut(t, d, "other/folder/after", []byte("after"))
	mustPut(t, d, "a/b/after", []byte("after"))
	// The new process's first Put removed what the dead one left.
	if folders, err := mem.List("/data/tier/" + tempFolder); err != nil || len(folders) != 1 {
		t.Fatalf("temporary folders left: %q %v", folders, err)
	}
	mem = mem.CrashClone(vfs.CrashCloneCfg{})
	again := NewDir(mem, "/data/tier")
	wantBytes(t, again, "other/folder/after", 0, -1, []byte("after"))
	wantBytes(t, again, "a/b/after", 0, -1, []byte("after"))
}

// TestDirSyncsFoldersOfTheDead: a process made the folders and died before it synced
// them; the next one finds them, puts into them, and then the power goes.
func TestDirSyncsFoldersOfTheDead(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("/data/tier/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	mustPut(t, NewDir(mem, "/data/tier"), "a/b/c", []byte("x"))
	wantBytes(t, NewDir(mem.CrashClone(vfs.CrashCloneCfg{}), "/data/tier"), "a/b/c", 0, -1, []byte("x"))
}

func oldOrNew(t *testing.T, d *Dir, key string, old, fresh []byte, acked bool) {
	t.Helper()
	got, err := getRange(t.Context(), d, key, 0, -1)
	switch {
	case err == nil && bytes.Equal(got, fresh):
	case acked:
		t.Fatalf("acknowledged object after the crash: %d bytes, %v", len(got), err)
	case old == nil && errors.Is(err, ErrNotFound):
	case old != nil && err == nil && bytes.Equal(got, old):
	default:
		t.Fatalf("neither the old nor the new object: %d bytes, %v", len(got), err)
	}
	// What is listed can be read.
	for _, key := range listAll(t, d, "", "") {
		if _, err := getRange(t.Context(), d, key, 0, -1); err != nil {
			t.Fatalf("listed but not readable: %v", err)
		}
	}
}

func TestDirCrash(t *testing.T) {
	old, fresh := []byte("old"), randomBytes(5, 2*copyBufferBytes+3)
	put := func(opt PutOptions) func(t *testing.T, d *Dir) error {
		return func(t *testing.T, d *Dir) error {
			_, err := d.Put(t.Context(), "a/b/c", BytesBody(fresh), opt)
			return err
		}
	}
	putOld := func(t *testing.T, d *Dir) { mustPut(t, d, "a/b/c", old) }
	for name, c := range map[string]crashTest{
		"first": {op: put(PutOptions{}), check: func(t *testing.T, d *Dir, acked bool) { oldOrNew(t, d, "a/b/c", nil, fresh, acked) }},
		"create": {op: put(PutOptions{IfNoneMatch: true}), check: func(t *testing.T, d *Dir, acked bool) {
			oldOrNew(t, d, "a/b/c", nil, fresh, acked)
		}},
		"overwrite": {setup: putOld, op: put(PutOptions{}), check: func(t *testing.T, d *Dir, acked bool) {
			oldOrNew(t, d, "a/b/c", old, fresh, acked)
		}},
		"replace": {setup: putOld, op: func(t *testing.T, d *Dir) error {
			info, err := d.Head(t.Context(), "a/b/c")
			if err != nil {
				return err
			}
			return put(PutOptions{IfMatch: info.ETag})(t, d)
		}, check: func(t *testing.T, d *Dir, acked bool) { oldOrNew(t, d, "a/b/c", old, fresh, acked) }},
		"delete": {setup: func(t *testing.T, d *Dir) {
			putOld(t, d)
			mustPut(t, d, "a/x/y", old)
			mustPut(t, d, "a/stays", old)
		}, op: func(t *testing.T, d *Dir) error {
			failed, err := d.Delete(t.Context(), []string{"a/b/c", "a/x/y"})
			if err == nil && len(failed) > 0 {
				err = failed[0]
			}
			return err
		}, check: checkDeleted(old)},
	} {
		t.Run(name, c.run)
	}
}

func checkDeleted(old []byte) func(t *testing.T, d *Dir, acked bool) {
	return func(t *testing.T, d *Dir, acked bool) {
		for _, key := range []string{"a/b/c", "a/x/y"} {
			got, err := getRange(t.Context(), d, key, 0, -1)
			if !errors.Is(err, ErrNotFound) && (acked || err != nil || !bytes.Equal(got, old)) {
				t.Fatalf("%q after delete (acknowledged: %v): %d bytes, %v", key, acked, len(got), err)
			}
		}
		wantBytes(t, d, "a/stays", 0, -1, old)
		// A delete that is tried again ends it.
		if failed, err := d.Delete(t.Context(), []string{"a/b/c", "a/x/y"}); err != nil || len(failed) > 0 {
			t.Fatalf("second delete: %v %v", failed, err)
		}
		if keys := listAll(t, d, "", ""); len(keys) != 1 {
			t.Fatalf("left: %q", keys)
		}
	}
}

// TestDirStepErrors fails one step at a time without a crash: the error is reported or
// the operation is whole, and the store goes on working.
func TestDirStepErrors(t *testing.T) {
	fresh := randomBytes(6, copyBufferBytes+3)
	for cut := 1; ; cut++ {
		step, armed := 0, false
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed && op.Kind != errorfs.OpFileClose {
				if step++; step == cut {
					return errors.New("injected")
				}
			}
			return nil
		}))
		d := NewDir(fs, "/tier")
		armed = true
		_, err := d.Put(t.Context(), "a/b", BytesBody(fresh), PutOptions{IfNoneMatch: true})
		armed = false
		if step < cut {
			return
		}
		if err == nil {
			wantBytes(t, d, "a/b", 0, -1, fresh)
		}
		mustPut(t, d, "a/b", fresh)
		wantBytes(t, d, "a/b", 0, -1, fresh)
	}
}

func TestDirPrunesAndIgnoresStrangers(t *testing.T) {
	mem := vfs.NewMem()
	d := NewDir(mem, "/tier")
	for _, k := range []string{"a/b/c/d", "a/b/e", "f"} {
		mustPut(t, d, k, []byte(k))
	}
	for _, stranger := range []string{"/tier/README", "/tier/%zz.obj", "/tier/a/%41.obj", "/tier/.hidden.obj"} {
		f, err := mem.Create(stranger, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if got := listAll(t, d, "", ""); len(got) != 3 {
		t.Fatalf("listed %q", got)
	}
	if failed, err := d.Delete(t.Context(), []string{"a/b/c/d", "f"}); err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	if _, err := mem.Stat("/tier/a/b/c"); err == nil {
		t.Fatal("an empty folder stayed")
	}
	if _, err := mem.Stat("/tier/a/b"); err != nil {
		t.Fatal("a folder with an object in it went")
	}
}

// TestDirDamage changes stored bytes: whole reads, and all reads of a damaged trailer,
// must say so.
func TestDirDamage(t *testing.T) {
	data := randomBytes(8, 3000)
	for at := int64(0); at < 3000+trailerBytes; at += 7 {
		mem := vfs.NewMem()
		d := NewDir(mem, "/tier")
		mustPut(t, d, "a/b", data)
		name := path.Join("/tier", keyPath("a/b"))
		f, err := mem.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		f.ReadAt(one, at)
		one[0] ^= 0x10
		f.WriteAt(one, at)
		f.Close()
		if got, err := getRange(t.Context(), d, "a/b", 0, -1); err == nil {
			t.Fatalf("byte %d changed, %d bytes read without an error", at, len(got))
		} else if !strings.Contains(err.Error(), "corruption") && !strings.Contains(err.Error(), "version") {
			t.Fatalf("byte %d changed: %v", at, err)
		}
	}
}

// TestDirErrors: a full or read-only disk is told apart from a damaged one.
func TestDirErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want func(error) bool
	}{
		{syscall.ENOSPC, IsRetryable},
		{syscall.EDQUOT, IsRetryable},
		{syscall.EACCES, func(err error) bool { return errors.Is(err, ErrForbidden) }},
		{syscall.EROFS, func(err error) bool { return errors.Is(err, ErrForbidden) }},
		{syscall.EIO, func(err error) bool { return errors.Is(err, syscall.EIO) && !IsRetryable(err) }},
	} {
		for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpRename, errorfs.OpMkdirAll} {
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == kind {
					return c.err
				}
				return nil
			}))
			if _, err := NewDir(fs, "/tier").Put(t.Context(), "a/b", BytesBody([]byte("x")), PutOptions{}); !c.want(err) {
				t.Errorf("%v in operation %d: %v", c.err, kind, err)
			}
		}
	}
}
