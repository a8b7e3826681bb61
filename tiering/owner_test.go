package tiering

import (
	"context"
	"errors"
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
	golden(t, "owner-v1.json", raw)
}

func TestOwnerForeign(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		object string
		want   string
		check  func(error) bool
	}{
		"other cluster": {`{"version":1,"cluster_id":"other","epoch":3}`, "other", func(err error) bool { var e *OwnerError; return errors.As(err, &e) }},
		"newer":         {`{"version":2,"cluster_id":"c","epoch":1}`, "version 2", func(err error) bool { var e *FormatError; return errors.As(err, &e) }},
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
