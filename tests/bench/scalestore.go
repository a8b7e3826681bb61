package main

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"varve/tiering"
)

// double answers as an S3 server with one bucket would that holds a history's segments, which are made when somebody asks for their
// bytes, and whatever was put beside them.
type double struct {
	h        *history
	parts    []int32 // in the order of their folders
	names    []string
	modified string // RFC 3339
	srv      *http.Server
	endpoint string
	wg       sync.WaitGroup

	mu      sync.Mutex
	objects map[string][]byte
	sorted  []string // keys of objects; nil = to be sorted again
	calls   map[string]int64
	listed  int64           // keys that LISTs named
	gone    map[string]bool // segments that were deleted
}

const (
	doubleBucket = "scale"
	maxListKeys  = 1000
)

func newDouble(h *history) (*double, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &double{h: h, parts: h.folders(), endpoint: "http://" + l.Addr().String(), objects: map[string][]byte{}, calls: map[string]int64{}, gone: map[string]bool{},
		modified: time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04:05.000Z")}
	for _, p := range d.parts {
		d.names = append(d.names, h.folder(p))
	}
	d.srv = &http.Server{Handler: d}
	d.wg.Go(func() { _ = d.srv.Serve(l) }) // ends by close
	return d, nil
}

func (d *double) url() string {
	return "s3://" + doubleBucket + "?region=us-east-1&path-style=true&endpoint=" + strings.ReplaceAll(strings.ReplaceAll(d.endpoint, ":", "%3A"), "/", "%2F")
}

func (d *double) close() {
	_ = d.srv.Close()
	d.wg.Wait()
}

func (d *double) put(key string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[key], d.sorted = b, nil
}

// count is how often a verb was called.
func (d *double) count(verb string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[verb]
}

// ServeHTTP implements http.Handler.
func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+doubleBucket), "/")
	verb := r.Method
	if verb == http.MethodGet && key == "" {
		verb = "LIST"
	}
	d.mu.Lock()
	d.calls[verb]++
	d.mu.Unlock()
	switch q := r.URL.Query(); {
	case verb == "LIST" && q.Get("list-type") == "2":
		d.list(w, q.Get("prefix"), max(q.Get("start-after"), q.Get("continuation-token")), q.Get("max-keys"))
	case verb == http.MethodPut:
		d.store(w, r, key)
	case verb == http.MethodPost && q.Has("delete"):
		d.remove(w, r)
	case (verb == http.MethodGet || verb == http.MethodHead) && key != "":
		d.serve(w, r, key)
	default:
		refuse(w, http.StatusNotFound, "NoSuchConfiguration")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func etag(b []byte) string {
	sum := md5.Sum(b)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (d *double) store(w http.ResponseWriter, r *http.Request, key string) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	have, ok := d.objects[key]
	if want := r.Header.Get("If-Match"); ok && r.Header.Get("If-None-Match") == "*" || want != "" && (!ok || want != etag(have)) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	d.objects[key], d.sorted = b, nil
	w.Header().Set("ETag", etag(b))
}

func (d *double) remove(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Object []struct{ Key string }
	}
	if err := xml.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range in.Object {
		if _, ok := d.objects[o.Key]; ok {
			delete(d.objects, o.Key)
			d.sorted = nil
		} else {
			d.gone[o.Key] = true
		}
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, "<DeleteResult></DeleteResult>")
}

// segment finds the segment that a key names.
func (d *double) segment(key string) (p int32, i int, ok bool) {
	k, err := tiering.ParseSegmentKey(key)
	if err != nil || k.Partition >= int32(d.h.parts) || k.Base < scaleFirstOffset || k.Base >= d.h.end() {
		return 0, 0, false
	}
	p, i = k.Partition, int(k.Base-scaleFirstOffset)/scaleRecords
	d.mu.Lock()
	defer d.mu.Unlock()
	return p, i, d.h.key(p, i) == key && !d.gone[key]
}

func (d *double) serve(w http.ResponseWriter, r *http.Request, key string) {
	d.mu.Lock()
	b, ok := d.objects[key]
	d.mu.Unlock()
	w.Header().Set("Content-Type", "application/octet-stream")
	if ok {
		w.Header().Set("ETag", etag(b))
		http.ServeContent(w, r, "", time.Unix(0, 0), bytes.NewReader(b))
		return
	}
	p, i, ok := d.segment(key)
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	enc, err := d.h.encode(p, i)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError")
		return
	}
	d.mu.Lock()
	d.calls[r.Method+" segment"]++
	d.mu.Unlock()
	w.Header().Set("ETag", `"made"`)
	http.ServeContent(w, r, "", time.Unix(0, 0), io.NewSectionReader(enc, 0, enc.Size))
}

// named is one key of a LIST.
type named struct {
	key  string
	size int64
}

func (d *double) list(w http.ResponseWriter, prefix, after, most string) {
	limit, err := strconv.Atoi(most)
	if err != nil || limit > maxListKeys || limit < 1 {
		limit = maxListKeys
	}
	// One more than asked for tells whether there are more.
	page := append(d.stored(prefix, after, limit+1), d.made(prefix, after, limit+1)...)
	slices.SortFunc(page, func(a, b named) int { return strings.Compare(a.key, b.key) })
	cut := len(page) > limit
	page = page[:min(limit, len(page))]
	d.mu.Lock()
	d.listed += int64(len(page))
	d.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><KeyCount>%d</KeyCount><IsTruncated>%v</IsTruncated>`, len(page), cut)
	if cut {
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", page[limit-1].key)
	}
	for _, o := range page {
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;made&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>", o.key, d.modified, o.size)
	}
	b.WriteString("</ListBucketResult>")
	w.Header().Set("Content-Type", "application/xml")
	_, _ = w.Write(b.Bytes())
}

func (d *double) stored(prefix, after string, limit int) (out []named) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sorted == nil {
		d.sorted = slices.Sorted(maps.Keys(d.objects))
	}
	at := sort.Search(len(d.sorted), func(i int) bool { return d.sorted[i] > after && d.sorted[i] >= prefix })
	for _, key := range d.sorted[at:] {
		if !strings.HasPrefix(key, prefix) || len(out) == limit {
			break
		}
		out = append(out, named{key, int64(len(d.objects[key]))})
	}
	return out
}

func (d *double) made(prefix, after string, limit int) (out []named) {
	from := max(prefix, after)
	// The last folder at or below what is looked for, and those behind it.
	at := max(0, sort.SearchStrings(d.names, from+"\x00")-1)
	for ; at < len(d.names) && len(out) < limit; at++ {
		name, p := d.names[at], d.parts[at]
		if name > prefix && !strings.HasPrefix(name, prefix) {
			break
		}
		if !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name) {
			continue
		}
		first := sort.Search(d.h.per, func(i int) bool { k := d.h.key(p, i); return k > after && k >= prefix })
		for i := first; i < d.h.per && len(out) < limit; i++ {
			key := d.h.key(p, i)
			if !strings.HasPrefix(key, prefix) {
				break
			}
			d.mu.Lock()
			gone := d.gone[key]
			d.mu.Unlock()
			if !gone {
				out = append(out, named{key, d.h.rows[p].ObjectBytes})
			}
		}
	}
	return out
}
