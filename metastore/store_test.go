package metastore

import (
	"context"
	"testing"
	"time"
)

func openTest(t *testing.T, o Options) *Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func TestOpenIsFast(t *testing.T) {
	start := time.Now()
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 1})
	took := time.Since(start)
	t.Logf("open took %v", took)
	if s.ClusterID() == "" || s.Image().Controller() != 1 {
		t.Fatalf("cluster %q controller %d", s.ClusterID(), s.Image().Controller())
	}
	if took > 2*time.Second {
		t.Fatalf("open took %v", took)
	}
}
