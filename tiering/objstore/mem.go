package objstore

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Mem is a Store in memory, for tests and for nodes that may forget.
type Mem struct {
	name string
	now  func() time.Time

	mu      sync.Mutex
	objects map[string]memObject
	writes  uint64 // makes ETags unique
}

type memObject struct {
	data []byte // never changed once stored
	info ObjectInfo
}

// NewMem returns an empty store. now may be nil (time.Now).
func NewMem(now func() time.Time) *Mem {
	if now == nil {
		now = time.Now
	}
	return &Mem{name: "mem:", now: now, objects: map[string]memObject{}}
}

// String implements Store.
func (m *Mem) String() string { return m.name }

// Put implements Store.
func (m *Mem) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	if err := checkPut(key, body, opt); err != nil {
		return ObjectInfo{}, err
	}
	data, err := readBody(ctx, key, body, opt)
	if err != nil {
		return ObjectInfo{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.objects[key]
	if (opt.IfNoneMatch && exists) || (opt.IfMatch != "" && (!exists || old.info.ETag != opt.IfMatch)) {
		return ObjectInfo{}, fmt.Errorf("put %q: %w", key, ErrPrecondition)
	}
	m.writes++
	info := ObjectInfo{Key: key, Size: body.Size, ETag: fmt.Sprintf("mem-%d", m.writes), ModTime: m.now()}
	m.objects[key] = memObject{data: data, info: info}
	return info, nil
}

// Get implements Store.
func (m *Mem) Get(ctx context.Context, key string, off, length int64, _ string) (io.ReadCloser, error) {
	if err := checkGet(key, off); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	o, ok := m.objects[key]
	m.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("get %q: %w", key, ErrNotFound)
	}
	data := o.data[min(off, int64(len(o.data))):]
	if length >= 0 && length < int64(len(data)) {
		data = data[:length]
	}
	return &memBody{ctx: ctx, r: bytes.NewReader(data)}, nil
}

// memBody ends with its context, as a body from the wire does.
type memBody struct {
	ctx context.Context
	r   *bytes.Reader
}

func (b *memBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

func (b *memBody) Close() error { return nil }

// Head implements Store.
func (m *Mem) Head(ctx context.Context, key string) (ObjectInfo, error) {
	if err := ValidateKey(key); err != nil {
		return ObjectInfo{}, err
	}
	if err := ctx.Err(); err != nil {
		return ObjectInfo{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return ObjectInfo{}, fmt.Errorf("head %q: %w", key, ErrNotFound)
	}
	return o.info, nil
}

// Objects are the sizes of all objects by key, by a plain look at what is there, for tests that
// hold what List says against it.
func (m *Mem) Objects() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]int64, len(m.objects))
	for k, o := range m.objects {
		out[k] = int64(len(o.data))
	}
	return out
}

// List implements Store. It lists the objects there were when it was called.
func (m *Mem) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	m.mu.Lock()
	var infos []ObjectInfo
	for k, o := range m.objects {
		if strings.HasPrefix(k, prefix) && k > startAfter {
			infos = append(infos, o.info)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(infos, func(a, b ObjectInfo) int { return strings.Compare(a.Key, b.Key) })
	for _, info := range infos {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !fn(info) {
			return nil
		}
	}
	return ctx.Err()
}

// Delete implements Store.
func (m *Mem) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	keys, failed := validKeys(keys)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		delete(m.objects, k)
	}
	return failed, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readBody reads a whole body into memory and checks it against opt.
func readBody(ctx context.Context, key string, body Body, opt PutOptions) ([]byte, error) {
	var buf bytes.Buffer
	crc, err := copyBody(ctx, &buf, key, body)
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), checkCRC(key, crc, opt)
}
