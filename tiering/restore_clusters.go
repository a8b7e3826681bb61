package tiering

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"varve/tiering/objstore"
)

// maxClusters bounds the clusters in one folder of a bucket.
const maxClusters = 10_000

// ClusterFolder is the folder of one cluster in a bucket.
type ClusterFolder struct {
	ClusterID string
	Owner     string // cluster that owns it now; "" without an owner object
	Epoch     int64
}

// ListClusters names the clusters that have a folder under prefix: one LIST of one object for each.
func ListClusters(ctx context.Context, store objstore.Store, prefix string) (out []ClusterFolder, err error) {
	root := ""
	if prefix != "" {
		root = prefix + "/"
	}
	after := ""
	for range maxClusters {
		name := ""
		err := store.List(ctx, root, after, func(o objstore.ObjectInfo) bool {
			name, _, _ = strings.Cut(strings.TrimPrefix(o.Key, root), "/")
			return false
		})
		if err != nil || name == "" {
			return out, err
		}
		after = root + name + "0" // '0' is the character after '/'
		c := ClusterFolder{ClusterID: name}
		o, err := readOwner(ctx, store, ownerKey(prefix, name))
		switch {
		case err == nil:
			c.Owner, c.Epoch = o.ClusterID, o.Epoch
		case errors.Is(err, objstore.ErrNotFound):
			if !hasCluster(ctx, store, path.Join(prefix, name)) {
				continue // nothing of varve's
			}
		default:
			return out, err
		}
		out = append(out, c)
	}
	return out, nil
}

// hasCluster reports whether a folder without an owner object has a segment, a journal or a snapshot of varve's.
func hasCluster(ctx context.Context, store objstore.Store, folder string) (yes bool) {
	seen := 0
	_ = store.List(ctx, folder+"/", "", func(o objstore.ObjectInfo) bool {
		_, e1 := ParseSegmentKey(o.Key)
		_, e2 := ParseJournalKey(o.Key)
		_, _, e3 := ParseSnapshotKey(o.Key)
		yes = e1 == nil || e2 == nil || e3 == nil
		seen++
		return !yes && seen < 100
	})
	return yes
}

// PickCluster decides which cluster's folder a restore reads: the one that was asked for, or the only one that no other cluster than
// `by` has restored already.
//
// Errors: *NoSourceError, *OwnerError; those of the store.
func PickCluster(ctx context.Context, store objstore.Store, prefix, asked, by string, takeOver bool) (string, error) {
	all, err := ListClusters(ctx, store, prefix)
	if err != nil {
		return "", err
	}
	var free, names []string
	for _, c := range all {
		if c.ClusterID == by {
			continue
		}
		taken := c.Owner != "" && c.Owner != c.ClusterID && c.Owner != by
		if c.ClusterID == asked {
			if taken && !takeOver {
				return "", &OwnerError{Key: ownerKey(prefix, asked), Have: c.Owner, HaveEpoch: c.Epoch, Want: asked}
			}
			return asked, nil
		}
		text := c.ClusterID
		if taken {
			text += " (taken over by " + c.Owner + ")"
		} else {
			free = append(free, c.ClusterID)
		}
		names = append(names, text)
	}
	switch {
	case asked != "":
		return "", &NoSourceError{fmt.Sprintf("the bucket has no folder of a cluster %s", asked), "there are: " + strings.Join(names, ", ")}
	case len(names) == 0:
		return "", &NoSourceError{"the bucket has no folder of another cluster", "check --from: it is the varve.tier.url that the lost cluster had"}
	case len(free) != 1:
		return "", &NoSourceError{fmt.Sprintf("the bucket has folders of %d clusters", len(names)), "say which with --cluster: " + strings.Join(names, ", ")}
	}
	return free[0], nil
}
