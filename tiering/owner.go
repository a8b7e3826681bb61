package tiering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"varve/tiering/objstore"
)

// Owner object, version 1: JSON, so that a person who looks at a bucket can read
// it.
//
//	{"version":1,"cluster_id":"...","epoch":1}
//
// It is written once by conditional put. Its epoch rises when a restore takes the
// prefix over; deletes are allowed only while it names this cluster with the epoch
// that this process found first.
type ownerObject struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
	Epoch     int64  `json:"epoch"`
}

const (
	ownerVersion  = 1
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
	b, err := json.Marshal(ownerObject{ownerVersion, m.o.ClusterID, 1})
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
	b, err := m.getAll(ctx, m.ownerKey, maxOwnerBytes, "owner")
	if err != nil {
		return err
	}
	var o ownerObject
	if err := json.Unmarshal(b, &o); err != nil {
		return corrupt(m.ownerKey, "not JSON: %v", err)
	}
	if o.Version != ownerVersion {
		return &FormatError{fmt.Sprintf("version %d of the owner object", o.Version)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.ClusterID != m.o.ClusterID || (m.ownerEpoch != 0 && o.Epoch != m.ownerEpoch) {
		return &OwnerError{Key: m.ownerKey, Have: o.ClusterID, HaveEpoch: o.Epoch, Want: m.o.ClusterID}
	}
	m.ownerEpoch = o.Epoch
	return nil
}

// getAll reads a whole object of at most maxBytes.
func (m *Manager) getAll(ctx context.Context, key string, maxBytes int64, cause string) ([]byte, error) {
	r, err := m.o.Store.Get(ctx, key, 0, -1, cause)
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
