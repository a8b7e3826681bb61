package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"varve/protocol"
)

// contract is the test suite that each driver passes; the package comment promises
// what it checks. Keys lie under a prefix of their own per subtest, so the store may be
// shared.
type contract struct {
	store Store
	// wholeParts: the server keeps objects in a tree of folders, so that an object "a"
	// forbids an object "a/b".
	wholeParts bool
	listKeys   int // how many keys the list test puts
	partBytes  int // objects larger than this are sent in parts, if the driver has parts
}

const testPartBytes = minPartBytes

func (c contract) run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"roundtrip":    c.roundtrip,
		"ranges":       c.ranges,
		"missing":      c.missing,
		"keys":         c.keys,
		"badKeys":      c.badKeys,
		"list":         c.list,
		"create":       c.create,
		"replace":      c.replace,
		"corrupt":      c.corrupt,
		"cancel":       c.cancel,
		"cancelInBody": c.cancelInBody,
		"overwrite":    c.overwrite,
	} {
		t.Run(name, test)
	}
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	rng.Read(b)
	return b
}

func mustPut(t *testing.T, s Store, key string, data []byte) ObjectInfo {
	t.Helper()
	info, err := s.Put(t.Context(), key, BytesBody(data), PutOptions{Cause: "test"})
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return info
}

func getRange(ctx context.Context, s Store, key string, off, length int64) ([]byte, error) {
	body, err := s.Get(ctx, key, off, length, "test")
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(body)
	return data, errors.Join(err, body.Close())
}

func wantBytes(t *testing.T, s Store, key string, off, length int64, want []byte) {
	t.Helper()
	got, err := getRange(t.Context(), s, key, off, length)
	if err != nil {
		t.Fatalf("get %q %d+%d: %v", key, off, length, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("get %q %d+%d: %d bytes, not the %d wanted", key, off, length, len(got), len(want))
	}
}

func wantAbsent(t *testing.T, s Store, key string) {
	t.Helper()
	if _, err := s.Head(t.Context(), key); !errors.Is(err, ErrNotFound) {
		t.Fatalf("head %q: %v, want ErrNotFound", key, err)
	}
}

func listAll(t *testing.T, s Store, prefix, startAfter string) []string {
	t.Helper()
	var keys []string
	if err := s.List(t.Context(), prefix, startAfter, func(o ObjectInfo) bool {
		keys = append(keys, o.Key)
		return true
	}); err != nil {
		t.Fatalf("list %q after %q: %v", prefix, startAfter, err)
	}
	return keys
}

func (c contract) roundtrip(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 1<<20 + 17, c.partBytes, c.partBytes + 1, 2*c.partBytes + c.partBytes/2} {
		key, data := fmt.Sprintf("roundtrip/%d", size), randomBytes(uint64(size), size)
		crc := crc32.Checksum(data, castagnoli)
		put, err := c.store.Put(t.Context(), key, BytesBody(data), PutOptions{CRC32C: &crc, Cause: "test"})
		if err != nil {
			t.Fatalf("put %d bytes: %v", size, err)
		}
		head, err := c.store.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if head.Size != int64(size) || head.Key != key || head.ETag == "" || head.ETag != put.ETag || head.ModTime.IsZero() {
			t.Fatalf("head %+v after put %+v", head, put)
		}
		wantBytes(t, c.store, key, 0, -1, data)
	}
}

func (c contract) ranges(t *testing.T) {
	part := int64(c.partBytes)
	size := 2*part + 1234
	data := randomBytes(7, int(size))
	mustPut(t, c.store, "ranges/big", data)
	mustPut(t, c.store, "ranges/empty", nil)
	for _, r := range []struct{ off, length int64 }{
		{0, 1}, {0, size}, {0, size + 10}, {1, -1}, {size - 1, 1}, {size - 1, -1}, {size - 1, 100},
		{part - 3, 6}, {100, 64 << 10}, {2*part - 1, part},
		{5, 0}, {size, 1}, {size, -1}, {size + 5, 10}, {size + 5, -1},
	} {
		from := min(r.off, size)
		to := size
		if r.length >= 0 {
			to = min(from+r.length, size)
		}
		wantBytes(t, c.store, "ranges/big", r.off, r.length, data[from:to])
	}
	for _, r := range []struct{ off, length int64 }{{0, -1}, {0, 10}, {0, 0}, {3, 4}} {
		wantBytes(t, c.store, "ranges/empty", r.off, r.length, nil)
	}
	if _, err := c.store.Get(t.Context(), "ranges/big", -1, 5, ""); err == nil {
		t.Fatal("a negative offset was accepted")
	}
}

func (c contract) missing(t *testing.T) {
	for _, r := range []struct{ off, length int64 }{{0, -1}, {0, 10}, {5, 0}, {5, 5}} {
		if _, err := c.store.Get(t.Context(), "missing/x", r.off, r.length, ""); !errors.Is(err, ErrNotFound) {
			t.Fatalf("get of a missing object: %v", err)
		}
	}
	wantAbsent(t, c.store, "missing/x")
	if failed, err := c.store.Delete(t.Context(), []string{"missing/x", "missing/y/z"}); err != nil || len(failed) > 0 {
		t.Fatalf("delete of missing objects: %v %v", failed, err)
	}
	if failed, err := c.store.Delete(t.Context(), nil); err != nil || len(failed) > 0 {
		t.Fatalf("delete of nothing: %v %v", failed, err)
	}
	if keys := listAll(t, c.store, "missing/", ""); len(keys) > 0 {
		t.Fatalf("missing objects listed: %q", keys)
	}
}

func (c contract) keys(t *testing.T) {
	keys := []string{
		"plain", "with space", "plus+sign", "per%cent", "%2F", "%", "amp&ersand", "ques?tion", "ha#sh", "quo\"te", "apo'strophe",
		"equal=at@tilde~", "<xml>", "semi;colon:", "comma,", "{braces}", "[brackets]", "star*", "pipe|caret^",
		".dot", ".tmp/x", ".lock", "..two", "trailing.", "x.obj", "folder.obj/x", "ümlaut/日本語/🙂", "e\u0301", strings.Repeat("k", 200),
		"sort/a-b", "sort/a/b", "sort/a0", "sort/a.b", "UPPER/lower",
	}
	if !c.wholeParts {
		keys = append(keys, "deep", "deep/deeper", "deep/deeper/deepest", "deep.obj")
	}
	for i, k := range keys {
		mustPut(t, c.store, "keys/"+k, fmt.Appendf(nil, "%d", i))
	}
	for i, k := range keys {
		wantBytes(t, c.store, "keys/"+k, 0, -1, fmt.Appendf(nil, "%d", i))
	}
	var want []string
	for _, k := range keys {
		want = append(want, "keys/"+k)
	}
	slices.Sort(want)
	if got := listAll(t, c.store, "keys/", ""); !slices.Equal(got, want) {
		t.Fatalf("listed\n%q\nwant\n%q", got, want)
	}
	if failed, err := c.store.Delete(t.Context(), want); err != nil || len(failed) > 0 {
		t.Fatalf("delete: %v %v", failed, err)
	}
	if got := listAll(t, c.store, "keys/", ""); len(got) > 0 {
		t.Fatalf("left after delete: %q", got)
	}
}

func (c contract) badKeys(t *testing.T) {
	for _, k := range []string{
		"", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/.", "nul\x00", "line\n", "back\\slash", "\xff\xfe",
		strings.Repeat("p", 201), strings.Repeat("long/", 220) + "x",
	} {
		if _, err := c.store.Put(t.Context(), k, BytesBody([]byte("x")), PutOptions{}); !errors.Is(err, ErrBadKey) {
			t.Errorf("put %q: %v", k, err)
		}
		if _, err := c.store.Get(t.Context(), k, 0, -1, ""); !errors.Is(err, ErrBadKey) {
			t.Errorf("get %q: %v", k, err)
		}
		if _, err := c.store.Head(t.Context(), k); !errors.Is(err, ErrBadKey) {
			t.Errorf("head %q: %v", k, err)
		}
		failed, err := c.store.Delete(t.Context(), []string{k, "bad/good"})
		if err != nil || len(failed) != 1 || !errors.Is(failed[0], ErrBadKey) {
			t.Errorf("delete %q: %v %v", k, failed, err)
		}
	}
	if _, err := c.store.Put(t.Context(), "bad/both", BytesBody(nil), PutOptions{IfNoneMatch: true, IfMatch: "x"}); err == nil {
		t.Error("both conditions at once were accepted")
	}
	if _, err := c.store.Put(t.Context(), "bad/size", Body{Size: -1}, PutOptions{}); err == nil {
		t.Error("a negative size was accepted")
	}
	wantAbsent(t, c.store, "bad/size")
}

func (c contract) list(t *testing.T) {
	want := make([]string, c.listKeys)
	var g errgroup.Group
	g.SetLimit(8)
	for i := range want {
		want[i] = fmt.Sprintf("list/%c/%c-%04d", 'a'+i%3, 'p'+i%2, i)
		g.Go(func() error {
			_, err := c.store.Put(t.Context(), want[i], BytesBody([]byte("x")), PutOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	for _, q := range []struct{ prefix, after string }{
		{"list/", ""}, {"list", ""}, {"list/b", ""}, {"list/b/", ""}, {"list/b/q", ""}, {"list/c/p-0", "list/c/p-01"},
		{"list/", "list/a/zzz"}, {"list/", want[len(want)/2]}, {"list/b/", "a"}, {"list/b/", "list/b"}, {"list/b/", "list/c"},
		{"list/", want[len(want)-1]}, {"list/x", ""}, {"list/a/p-0000/", ""}, {"list//", ""}, {"list/../", ""},
	} {
		var expect []string
		for _, k := range want {
			if strings.HasPrefix(k, q.prefix) && k > q.after {
				expect = append(expect, k)
			}
		}
		if got := listAll(t, c.store, q.prefix, q.after); !slices.Equal(got, expect) {
			t.Fatalf("list %q after %q: %d keys, want %d", q.prefix, q.after, len(got), len(expect))
		}
	}
	var some []string
	if err := c.store.List(t.Context(), "list/", "", func(o ObjectInfo) bool {
		some = append(some, o.Key)
		return len(some) < 5
	}); err != nil || !slices.Equal(some, want[:5]) {
		t.Fatalf("a listing that was stopped: %q %v", some, err)
	}
	absent := []string{"list/none/1", "list/none/2"}
	if failed, err := c.store.Delete(t.Context(), append(absent, want...)); err != nil || len(failed) > 0 {
		t.Fatalf("delete %d keys: %v %v", len(want), failed, err)
	}
	if got := listAll(t, c.store, "list/", ""); len(got) > 0 {
		t.Fatalf("%d keys left after delete", len(got))
	}
}

// race runs n conditional puts at once and returns the winners' numbers.
func (c contract) race(t *testing.T, key string, n int, opt PutOptions) []int {
	t.Helper()
	var (
		mu      sync.Mutex
		winners []int
		g       errgroup.Group
	)
	for i := range n {
		g.Go(func() error {
			_, err := c.store.Put(t.Context(), key, BytesBody(fmt.Appendf(nil, "writer %d", i)), opt)
			if errors.Is(err, ErrPrecondition) || IsRetryable(err) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			winners = append(winners, i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return winners
}

func (c contract) create(t *testing.T) {
	for round := range 5 {
		key := fmt.Sprintf("create/%d", round)
		winners := c.race(t, key, 8, PutOptions{IfNoneMatch: true})
		if len(winners) != 1 {
			t.Fatalf("%d of 8 created %q", len(winners), key)
		}
		wantBytes(t, c.store, key, 0, -1, fmt.Appendf(nil, "writer %d", winners[0]))
	}
	big := randomBytes(3, c.partBytes+5)
	if _, err := c.store.Put(t.Context(), "create/0", BytesBody(big), PutOptions{IfNoneMatch: true}); !errors.Is(err, ErrPrecondition) {
		t.Fatalf("create in parts of what exists: %v", err)
	}
	if _, err := c.store.Put(t.Context(), "create/big", BytesBody(big), PutOptions{IfNoneMatch: true}); err != nil {
		t.Fatalf("create in parts: %v", err)
	}
	wantBytes(t, c.store, "create/big", 0, -1, big)
}

func (c contract) replace(t *testing.T) {
	key := "replace/owner"
	if _, err := c.store.Put(t.Context(), key, BytesBody([]byte("x")), PutOptions{IfMatch: "0123456789abcdef"}); !errors.Is(err, ErrPrecondition) {
		t.Fatalf("replace of what is not there: %v", err)
	}
	first := mustPut(t, c.store, key, []byte("first"))
	second, err := c.store.Put(t.Context(), key, BytesBody([]byte("second")), PutOptions{IfMatch: first.ETag})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.store.Put(t.Context(), key, BytesBody([]byte("third")), PutOptions{IfMatch: first.ETag}); !errors.Is(err, ErrPrecondition) {
		t.Fatalf("replace with a stale ETag: %v", err)
	}
	wantBytes(t, c.store, key, 0, -1, []byte("second"))
	if winners := c.race(t, key, 8, PutOptions{IfMatch: second.ETag}); len(winners) != 1 {
		t.Fatalf("%d of 8 replaced the same object", len(winners))
	}
}

// failingReaderAt fails at and behind an offset.
type failingReaderAt struct {
	data []byte
	at   int64
	err  error
	hook func()
}

func (f *failingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.at {
		if f.hook != nil {
			f.hook()
		}
		if f.err != nil {
			return 0, f.err
		}
	}
	return bytesReaderAt(f.data).ReadAt(p, off)
}

func (c contract) corrupt(t *testing.T) {
	for _, size := range []int{100, c.partBytes + 100} {
		data := randomBytes(9, size)
		key := fmt.Sprintf("corrupt/%d", size)
		bad := crc32.Checksum(data, castagnoli) ^ 1
		var corruption *protocol.CorruptionError
		if _, err := c.store.Put(t.Context(), key, BytesBody(data), PutOptions{CRC32C: &bad}); !errors.As(err, &corruption) {
			t.Fatalf("put with a wrong CRC: %v", err)
		}
		wantAbsent(t, c.store, key)
		if _, err := c.store.Put(t.Context(), key, Body{ReaderAt: bytesReaderAt(data), Size: int64(size) + 1}, PutOptions{}); !errors.As(err, &corruption) {
			t.Fatalf("put of a body that ends early: %v", err)
		}
		wantAbsent(t, c.store, key)
		disk := errors.New("disk on fire")
		body := Body{ReaderAt: &failingReaderAt{data: data, at: int64(size) / 2, err: disk}, Size: int64(size)}
		if _, err := c.store.Put(t.Context(), key, body, PutOptions{}); !errors.Is(err, disk) || IsRetryable(err) {
			t.Fatalf("put from a source that fails: %v", err)
		}
		wantAbsent(t, c.store, key)
	}
}

func (c contract) cancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mustPut(t, c.store, "cancel/there", []byte("x"))
	calls := map[string]func() error{
		"put": func() error {
			_, err := c.store.Put(ctx, "cancel/x", BytesBody([]byte("x")), PutOptions{})
			return err
		},
		"get":    func() error { _, err := c.store.Get(ctx, "cancel/there", 0, -1, ""); return err },
		"head":   func() error { _, err := c.store.Head(ctx, "cancel/there"); return err },
		"list":   func() error { return c.store.List(ctx, "cancel/", "", func(ObjectInfo) bool { return true }) },
		"delete": func() error { _, err := c.store.Delete(ctx, []string{"cancel/there"}); return err },
	}
	for verb, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s after cancel: %v", verb, err)
		}
	}
	wantBytes(t, c.store, "cancel/there", 0, -1, []byte("x"))
	wantAbsent(t, c.store, "cancel/x")
}

func (c contract) cancelInBody(t *testing.T) {
	data := randomBytes(11, 2*c.partBytes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	src := &failingReaderAt{data: data, at: int64(c.partBytes) + 100, hook: cancel}
	if _, err := c.store.Put(ctx, "cancelInBody/put", Body{ReaderAt: src, Size: int64(len(data))}, PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("put cancelled half-way: %v", err)
	}
	wantAbsent(t, c.store, "cancelInBody/put")

	mustPut(t, c.store, "cancelInBody/get", data)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	body, err := c.store.Get(ctx, "cancelInBody/get", 0, -1, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, body); !errors.Is(err, context.Canceled) {
		t.Fatalf("read of a cancelled body: %v", err)
	}
	body.Close()
}

func (c contract) overwrite(t *testing.T) {
	small, big := []byte("small"), randomBytes(13, c.partBytes+1)
	for _, data := range [][]byte{small, big, nil, small} {
		mustPut(t, c.store, "overwrite/x", data)
		wantBytes(t, c.store, "overwrite/x", 0, -1, data)
	}
	if failed, err := c.store.Delete(t.Context(), []string{"overwrite/x", "overwrite/x"}); err != nil || len(failed) > 0 {
		t.Fatalf("delete: %v %v", failed, err)
	}
	wantAbsent(t, c.store, "overwrite/x")
	mustPut(t, c.store, "overwrite/x", small)
	wantBytes(t, c.store, "overwrite/x", 0, -1, small)
}
