package tiering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"varve/tiering/objstore"
)

// Owner object, version 2: JSON, so that a person who looks at a bucket can read
// it.
//
//	{"version":2,"cluster_id":"...","epoch":1,"delete_deadline_ms":60000,"crc32c":305419896}
//
// The checksum is that of the same object without it. Version 1 has none, and is read.
//
// It is written once by conditional put. Its epoch rises when a restore takes the
// prefix over; deletes are allowed only while it names this cluster with the epoch
// that this process found first. No batch of deletes takes longer than its deadline
// (a minute where none is named): who takes the prefix over waits for so long.
type ownerObject struct {
	Version          int    `json:"version"`
	ClusterID        string `json:"cluster_id"`
	Epoch            int64  `json:"epoch"`
	DeleteDeadlineMs int64  `json:"delete_deadline_ms,omitempty"`

	CRC32C *uint32 `json:"crc32c,omitempty"`
}

// encode writes the object with its checksum.
func (o ownerObject) encode() ([]byte, error) {
	crc, err := o.checksum()
	if err != nil {
		return nil, err
	}
	o.CRC32C = &crc
	return json.Marshal(o)
}

func (o ownerObject) checksum() (uint32, error) {
	o.CRC32C = nil
	b, err := json.Marshal(o)
	return crc32.Checksum(b, castagnoli), err
}

func (o *ownerObject) deadline() time.Duration {
	if o.DeleteDeadlineMs <= 0 {
		return deleteDeadline
	}
	return time.Duration(o.DeleteDeadlineMs) * time.Millisecond
}

const (
	ownerVersion  = 2
	maxOwnerBytes = 4 << 10
)

// OwnerError says that the prefix belongs to another cluster, or was taken over.
type OwnerError struct {
	Key       string
	Have      string // the cluster that owns it
	HaveEpoch int64
	Want      string
}

// Error implements error and names the fix.
func (e *OwnerError) Error() string {
	return fmt.Sprintf("tier object %s names cluster %s (epoch %d) as owner, not %s: use another prefix in the tier URL, or restore from this one",
		e.Key, e.Have, e.HaveEpoch, e.Want)
}

// ClaimOwner makes sure that this cluster owns its prefix, by a conditional put at
// the first start. Errors: *OwnerError, *FormatError, *protocol.CorruptionError,
// those of the store. Run claims too, and again until it works; a broker calls it
// before to learn of a foreign prefix at once.
func (m *Manager) ClaimOwner(ctx context.Context) error {
	if err := m.checkOwner(ctx); !errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	if err := m.fail(fpOwnerPut); err != nil {
		return err
	}
	b, err := ownerObject{Version: ownerVersion, ClusterID: m.o.ClusterID, Epoch: 1, DeleteDeadlineMs: m.o.DeleteDeadlineMs}.encode()
	if err != nil {
		return err
	}
	_, err = m.o.Store.Put(ctx, m.ownerKey, objstore.BytesBody(b), objstore.PutOptions{IfNoneMatch: true, Cause: "owner"})
	if err != nil && !errors.Is(err, objstore.ErrPrecondition) && !objstore.IsRetryable(err) {
		return err
	}
	// A lost reply and a race look alike: what stands there now decides.
	return m.checkOwner(ctx)
}

// checkOwner reads the owner object again. It remembers the epoch first seen.
func (m *Manager) checkOwner(ctx context.Context) error {
	o, err := readOwner(ctx, m.o.Store, m.ownerKey)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.ClusterID != m.o.ClusterID || (m.ownerEpoch != 0 && o.Epoch != m.ownerEpoch) {
		return &OwnerError{Key: m.ownerKey, Have: o.ClusterID, HaveEpoch: o.Epoch, Want: m.o.ClusterID}
	}
	m.ownerEpoch, m.deleteLimit = o.Epoch, o.deadline()
	return nil
}

// stillOwner is checkOwner for whoever only wants to know whether the prefix was taken over: a store that does not answer
// is no reason to stop.
func (m *Manager) stillOwner(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	err := m.checkOwner(ctx)
	var foreign *OwnerError
	if errors.As(err, &foreign) {
		m.note(&m.ownerErr, err)
		return err
	}
	return nil
}

// checkClaim makes sure that the folder of another cluster, which a restore took over, is still this one's.
func (m *Manager) checkClaim(ctx context.Context, cluster string, epoch int64) error {
	key := ownerKey(m.o.Prefix, cluster)
	o, err := readOwner(ctx, m.o.Store, key)
	if err != nil {
		return err
	}
	if o.ClusterID != m.o.ClusterID || o.Epoch != epoch {
		return &OwnerError{Key: key, Have: o.ClusterID, HaveEpoch: o.Epoch, Want: m.o.ClusterID}
	}
	return nil
}

// takeOver makes this cluster the owner of another one's folder, whoever has it now, and returns the claim and how long
// deletes of the owner before may still be on their way. Doing it again, after a crash, finds the claim.
func takeOver(ctx context.Context, store objstore.Store, prefix, cluster, by string) (epoch int64, wait time.Duration, err error) {
	key := ownerKey(prefix, cluster)
	for range maxTakeOvers {
		info, err := store.Head(ctx, key)
		opt := objstore.PutOptions{IfMatch: info.ETag, Cause: "owner"}
		old := ownerObject{}
		switch {
		case errors.Is(err, objstore.ErrNotFound):
			opt = objstore.PutOptions{IfNoneMatch: true, Cause: "owner"}
		case err != nil:
			return 0, 0, err
		default:
			// Read after the tag: what another writes in between makes the put fail.
			if old, err = readOwner(ctx, store, key); err != nil {
				return 0, 0, err
			}
		}
		if old.ClusterID == by {
			return old.Epoch, old.deadline(), nil
		}
		b, err := ownerObject{Version: ownerVersion, ClusterID: by, Epoch: old.Epoch + 1, DeleteDeadlineMs: old.DeleteDeadlineMs}.encode()
		if err != nil {
			return 0, 0, err
		}
		_, err = store.Put(ctx, key, objstore.BytesBody(b), opt)
		if err != nil && !errors.Is(err, objstore.ErrPrecondition) && !objstore.IsRetryable(err) {
			return 0, 0, err
		}
		// A lost reply and a race look alike: what stands there now decides.
	}
	return 0, 0, &objstore.RetryableError{Err: fmt.Errorf("tiering: %s changes hands again and again", key)}
}

const maxTakeOvers = 4

// readOwner reads an owner object. Errors: *FormatError, *protocol.CorruptionError,
// those of the store.
func readOwner(ctx context.Context, store objstore.Store, key string) (o ownerObject, err error) {
	b, err := getWhole(ctx, store, key, maxOwnerBytes, "owner")
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, corrupt(key, "not JSON: %v", err)
	}
	crc, err := o.checksum()
	if err != nil {
		return o, err
	}
	if o.Version == ownerVersion && (o.CRC32C == nil || *o.CRC32C != crc) {
		return o, corrupt(key, "its CRC32C is %08x", crc)
	}
	if o.Version < 1 || o.Version > ownerVersion {
		return o, &FormatError{fmt.Sprintf("version %d of the owner object", o.Version)}
	}
	return o, nil
}

// getAll reads a whole object of at most maxBytes.
func (m *Manager) getAll(ctx context.Context, key string, maxBytes int64, cause string) ([]byte, error) {
	return getWhole(ctx, m.o.Store, key, maxBytes, cause)
}

func getWhole(ctx context.Context, store objstore.Store, key string, maxBytes int64, cause string) ([]byte, error) {
	r, err := store.Get(ctx, key, 0, -1, cause)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > maxBytes {
		return nil, corrupt(key, "more than %d bytes", maxBytes)
	}
	return b, nil
}
