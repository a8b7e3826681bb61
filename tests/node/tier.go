package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tests/s3server"
)

// tierCheckLimit bounds the opening of a dead node's metadata.
const tierCheckLimit = 30 * time.Second

// CheckTier compares the bucket of a node that is dead, looked at without varve's code, with the metadata that the node left, object by
// object: each readable segment has its object, of the size and with the name that its row says; in the cluster's own folder there is no
// other one, and in a folder that a restore took over none of a topic that came back; a salvage, which there has been where the folder has
// no metadata, may leave some. What the rows say is being stored or deleted may be there or not. A bucket that nobody here can look into
// is no excuse when rows say that something is in it.
func CheckTier(t testing.TB, data, tierURL string) {
	t.Helper()
	objects, known, err := s3server.ObjectsAt(tierURL)
	if err != nil {
		t.Errorf("a look at %s: %v", tierURL, err)
	}
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tierCheckLimit)
	defer cancel()
	meta, err := metastore.Open(ctx, metastore.Options{Dir: filepath.Join(data, "meta"), NodeID: 1})
	if err != nil {
		t.Errorf("the metadata of a dead node: %v", err)
		return
	}
	defer func() {
		if err := meta.Close(ctx); err != nil {
			t.Errorf("the metadata of a dead node: %v", err)
		}
	}()
	rows, waiting, err := allRows(meta)
	if err != nil {
		t.Errorf("rows of a dead node: %v", err)
		return
	}
	if !known && len(rows) > len(waiting) {
		t.Errorf("%d segments are said to be in %s, which is neither a folder nor a bucket of a server of this process", len(rows)-len(waiting), tierURL)
	}
	if !known {
		return
	}
	forgetForeign(objects, meta.Image(), meta.ClusterID(), rows)
	for _, diff := range s3server.Differences(objects, rows, func(id string) bool { return waiting[id] }) {
		t.Errorf("at the end: %s", diff)
	}
	t.Logf("at the end %d segments, %d of them waiting, compared with %d objects", len(rows), len(waiting), len(objects))
}

// forgetForeign takes out what is not the cluster's: folders of others and, in those that it took over, topics that did not come back.
func forgetForeign(objects map[string]int64, img *metastore.Image, cluster string, rows []s3server.Row) {
	ours := map[string]bool{}
	for topic := range img.Topics() {
		ours[topic.ID.String()] = true
	}
	named := map[string]bool{}
	for _, r := range rows {
		named[r.ID], ours[r.TopicID] = true, true
	}
	folders := []string{cluster}
	for _, c := range img.Claims() {
		folders = append(folders, c.ClusterId)
	}
	in := func(key string) int {
		return slices.IndexFunc(folders, func(f string) bool { return strings.Contains("/"+key, "/"+f+"/") })
	}
	salvaged := make([]bool, len(folders))
	for at := range folders {
		salvaged[at] = true
	}
	for key := range objects {
		if at := in(key); at >= 0 && strings.Contains(key, "/meta/") {
			salvaged[at] = false
		}
	}
	for key := range objects {
		at := in(key)
		seg, ok := s3server.SegmentOf(key)
		if at < 0 || at > 0 && ok && !named[seg.ID] && (salvaged[at] || !ours[seg.TopicID]) {
			delete(objects, key)
		}
	}
}

// allRows are the rows of all segments, and which of them are on their way.
func allRows(meta *metastore.Store) (rows []s3server.Row, waiting map[string]bool, err error) {
	waiting = map[string]bool{}
	add := func(r metastore.RemoteSegment) bool {
		rows = append(rows, s3server.Row{
			ID: r.ID.String(), TopicID: r.TopicID.String(), Partition: r.Partition, Base: r.Base, Next: r.Next,
			MaxTimestamp: r.MaxTimestamp, LeaderEpoch: r.LeaderEpoch, Generation: r.Generation, Bytes: r.ObjectBytes,
		})
		return true
	}
	for topic := range meta.Image().Topics() {
		for p := range topic.Partitions {
			if err := meta.SegmentsFrom(topic.ID, int32(p), 0, add); err != nil && protocol.CodeOf(err) != protocol.UnknownTopicID {
				return nil, nil, err
			}
		}
	}
	var at metastore.Cursor
	for {
		page, next, err := meta.PendingSegments(at, metastore.MaxSegmentIDs)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range page {
			waiting[r.ID.String()] = true
			add(r)
		}
		if len(page) < metastore.MaxSegmentIDs {
			return rows, waiting, nil
		}
		at = next
	}
}

// checked are the buckets that a test has compared: the node that was started last is the one whose metadata counts.
var checked = struct {
	sync.Mutex
	at map[testing.TB][]string
}{at: map[testing.TB][]string{}}

// checkOnce is CheckTier for the last node of a test that used the bucket.
func checkOnce(t testing.TB, data, tierURL string) {
	checked.Lock()
	done := slices.Contains(checked.at[t], tierURL)
	checked.at[t] = append(checked.at[t], tierURL)
	checked.Unlock()
	if _, err := os.Stat(filepath.Join(data, "meta")); done || data == "" || tierURL == "" || err != nil {
		return
	}
	CheckTier(t, data, tierURL)
}
