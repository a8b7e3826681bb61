package s3server

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Row is a segment as the metastore has it, in whatever state.
type Row struct {
	ID           string
	TopicID      string
	Partition    int32
	Base, Next   int64
	MaxTimestamp int64 // ms
	LeaderEpoch  int32
	Generation   uint32
	Bytes        int64 // of the object
}

// Bounds of a file system's own names in a store's folder.
const (
	dirObjectSuffix       = ".obj" // of a dir store's files
	dirObjectTrailerBytes = 36     // behind the object's own bytes
)

// segmentName reads a segment's key by itself: this shares nothing with the code that writes keys.
var segmentName = regexp.MustCompile(`^(?:.*/)?[^/]+/[0-9a-f]{2}/([A-Za-z0-9_-]{22})/(\d{10})/` +
	`(\d{20})-(\d{20})-(-?\d{19,20})-(\d{10})-(\d{10})-([A-Za-z0-9_-]{22})\.seg$`)

// otherName is everything else that may lie in a tier.
var otherName = regexp.MustCompile(`^(?:.*/)?[^/]+/(owner|meta/(journal/\d{20}|(snapshot|restore)/[^/]+))$`)

// Differences compares the objects that a bucket holds, by key and with their sizes, with the rows of all segments, object by object.
// gone may be nil; otherwise it says of a row that its object may be absent, because it is about to be deleted or stored.
func Differences(objects map[string]int64, rows []Row, gone func(id string) bool) (diff []string) {
	want := map[string]string{}
	for _, r := range rows {
		want[r.ID] = r.text()
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		m := segmentName.FindStringSubmatch(key)
		switch {
		case m == nil && !otherName.MatchString(key):
			diff = append(diff, "nobody writes "+key)
		case m == nil:
		case want[m[8]] == "":
			diff = append(diff, "no row for "+key)
		default:
			if has := rowOf(m, objects[key]).text(); has != want[m[8]] {
				diff = append(diff, fmt.Sprintf("%s is %s, its row says %s", key, has, want[m[8]]))
			}
			delete(want, m[8])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if gone == nil || !gone(id) {
			diff = append(diff, fmt.Sprintf("no object for segment %s: %s", id, want[id]))
		}
	}
	return diff
}

// SegmentOf is the segment that a key names, without its size; false for all other objects.
func SegmentOf(key string) (Row, bool) {
	m := segmentName.FindStringSubmatch(key)
	if m == nil {
		return Row{}, false
	}
	return rowOf(m, 0), true
}

func rowOf(m []string, size int64) Row {
	n := func(s string) int64 { v, _ := strconv.ParseInt(s, 10, 64); return v } // digits, by the expression
	return Row{ID: m[8], TopicID: m[1], Partition: int32(n(m[2])), Base: n(m[3]), Next: n(m[4]), MaxTimestamp: n(m[5]), LeaderEpoch: int32(n(m[6])),
		Generation: uint32(n(m[7])), Bytes: size}
}

func (r Row) text() string {
	return fmt.Sprintf("%s-%d [%d, %d) newest %d, epoch %d, generation %d, of %d bytes", r.TopicID, r.Partition, r.Base, r.Next, r.MaxTimestamp,
		r.LeaderEpoch, r.Generation, r.Bytes)
}

// Objects are what the bucket of the server holds below prefix, by a walk through the server's own folder.
func (s *Server) Objects(bucket, prefix string) (map[string]int64, error) {
	out := map[string]int64{}
	root := filepath.Join(s.dir, "data", bucket)
	err := walk(root, func(name string, size int64) {
		if strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, ".sgwtmp") {
			out[name] = size
		}
	})
	return out, err
}

// DirObjects are what a dir store holds, by a walk through its folder.
func DirObjects(root string) (map[string]int64, error) {
	out := map[string]int64{}
	err := walk(root, func(name string, size int64) {
		if key, ok := strings.CutSuffix(name, dirObjectSuffix); ok && !strings.HasPrefix(name, ".") {
			out[key] = size - dirObjectTrailerBytes
		}
	})
	return out, err
}

func walk(root string, file func(name string, size int64)) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		file(path.Clean(filepath.ToSlash(rel)), info.Size())
		return err
	})
}

// running are the servers of this process by their addresses, and by those of the proxies before them.
var running sync.Map // string to *Server

// ObjectsAt are the objects of the bucket that a tier URL names, in a folder or in a server of this process; known is false when it is
// neither. A folder, or a bucket, that is not there holds nothing.
func ObjectsAt(tierURL string) (objects map[string]int64, known bool, err error) {
	u, err := url.Parse(tierURL)
	if err != nil {
		return nil, false, err
	}
	if u.Scheme == "dir" {
		objects, err = DirObjects(u.Path)
		return held(objects, err)
	}
	s, ok := running.Load(u.Query().Get("endpoint"))
	if !ok {
		return nil, false, nil
	}
	objects, err = s.(*Server).Objects(u.Host, strings.TrimPrefix(u.Path, "/"))
	return held(objects, err)
}

func held(objects map[string]int64, err error) (map[string]int64, bool, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]int64{}, true, nil
	}
	return objects, true, err
}
