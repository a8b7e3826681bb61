package tiering

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"varve/protocol"
	"varve/tiering/objstore"
)

func TestOwnerClaim(t *testing.T) {
	ctx := context.Background()
	m, _, store, _ := newTestManager(t, nil)
	store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: "owner"})
	if err := m.ClaimOwner(ctx); err != nil {
		t.Fatalf("lost reply: %v", err)
	}
	if err := m.ClaimOwner(ctx); err != nil {
		t.Fatalf("again: %v", err)
	}
	if n := store.Calls(objstore.VerbPut); n != 1 {
		t.Fatalf("%d puts", n)
	}
	raw, err := m.getAll(ctx, m.ownerKey, maxOwnerBytes, "")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "owner-v2.json", raw)
}

func TestOwnerForeign(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		object string
		want   string
		check  func(error) bool
	}{
		"other cluster": {`{"version":1,"cluster_id":"other","epoch":3}`, "other", func(err error) bool { var e *OwnerError; return errors.As(err, &e) }},
		"newer":         {`{"version":3,"cluster_id":"c","epoch":1}`, "version 3", func(err error) bool { var e *FormatError; return errors.As(err, &e) }},
		"no checksum":   {`{"version":2,"cluster_id":"c","epoch":1}`, "CRC32C", func(err error) bool { var e *protocol.CorruptionError; return errors.As(err, &e) }},
		"garbage":       {`x`, "JSON", func(err error) bool { var e *protocol.CorruptionError; return errors.As(err, &e) }},
		"huge":          {strings.Repeat("x", 1<<20), "more than", func(err error) bool { var e *protocol.CorruptionError; return errors.As(err, &e) }},
	} {
		t.Run(name, func(t *testing.T) {
			m, _, store, _ := newTestManager(t, nil)
			if _, err := store.Put(ctx, m.ownerKey, objstore.BytesBody([]byte(c.object)), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			err := m.ClaimOwner(ctx)
			if !c.check(err) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestOwnerTakenOver: a restore that claimed the prefix ends our deletes.
func TestOwnerTakenOver(t *testing.T) {
	ctx := context.Background()
	m, _, store, _ := newTestManager(t, nil)
	if err := m.ClaimOwner(ctx); err != nil {
		t.Fatal(err)
	}
	b := []byte(`{"version":1,"cluster_id":"c","epoch":2}`)
	if _, err := store.Put(ctx, m.ownerKey, objstore.BytesBody(b), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var foreign *OwnerError
	if err := m.deleteBatch(ctx, nil); !errors.As(err, &foreign) {
		t.Fatalf("got %v", err)
	}
	if store.Calls(objstore.VerbDelete) != 0 {
		t.Fatal("deleted under a prefix that is another's")
	}
}

// TestOwnerDamaged: no bit of an owner object can turn without being noticed, whatever the store says of its bytes. Version 1,
// which has no checksum, is read.
func TestOwnerDamaged(t *testing.T) {
	m, _, store, _ := newTestManager(t, nil)
	ctx := t.Context()
	if err := m.ClaimOwner(ctx); err != nil {
		t.Fatal(err)
	}
	raw, err := m.getAll(ctx, m.ownerKey, maxOwnerBytes, "")
	if err != nil {
		t.Fatal(err)
	}
	want, err := readOwner(ctx, store, m.ownerKey)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(raw) {
		b := bytes.Clone(raw)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := store.Put(ctx, m.ownerKey, objstore.BytesBody(b), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := readOwner(ctx, store, m.ownerKey)
		if err == nil && (got.ClusterID != want.ClusterID || got.Epoch != want.Epoch || got.DeleteDeadlineMs != want.DeleteDeadlineMs) {
			t.Fatalf("bit %d turned: %s is read as %+v", bit, b, got)
		}
	}
	old, err := os.ReadFile("testdata/owner-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, m.ownerKey, objstore.BytesBody(old), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.checkOwner(ctx); err != nil {
		t.Fatal(err)
	}
}
