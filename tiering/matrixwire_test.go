package tiering

import (
	"flag"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"testing"
	"time"

	"varve/tests/s3server"
	"varve/tiering/objstore"
)

var allOnWire = flag.Bool("matrix.all", false, "play every request of the fault matrix over both SDKs, not over one each in turn")

const bucketGone = "bucket gone and back"

// wirePlay is a fault of the matrix as a server, or what lies before it, makes it; end is called when it is over.
type wirePlay func(c *wireCase) (play s3server.Play, end func())

func plays(p s3server.Play) wirePlay {
	return func(*wireCase) (s3server.Play, func()) { return p, func() {} }
}

// wireFaults are the rows of the matrix on the wire, but for the bucket that goes, which goes from the server's folder.
var wireFaults = map[string]wirePlay{
	"500":            plays(s3server.Refuse(http.StatusInternalServerError, "InternalError")),
	"503 SlowDown":   plays(s3server.Refuse(http.StatusServiceUnavailable, "SlowDown")),
	"timeout":        plays(s3server.Hang),
	"reset mid-body": plays(s3server.Reset),
	"wrong bytes":    plays(s3server.WrongBytes),
	"truncated body": plays(s3server.Cut),
	"lost PUT reply": plays(s3server.LoseReply),
	"late PUT": func(*wireCase) (s3server.Play, func()) {
		late := &s3server.Late{}
		return late.Play, late.Release
	},
	"stale LIST": func(c *wireCase) (s3server.Play, func()) {
		known, err := c.w.walk()
		if err != nil {
			c.t.Fatal(err)
		}
		return s3server.StaleList(known), func() {}
	},
	"partial multi-delete": func(c *wireCase) (s3server.Play, func()) { return c.srv.PartialDelete(c.bucket), func() {} },
	"AccessDenied":         plays(s3server.Refuse(http.StatusForbidden, "AccessDenied")),
	"expired credentials":  plays(s3server.Refuse(http.StatusForbidden, "ExpiredToken")),
}

// wireCase is a cell over a real server.
type wireCase struct {
	*matrixCase
	srv    *s3server.Server
	proxy  *s3server.Proxy
	bucket string
}

// onWire says which requests are those of a spot.
func onWire(s strike) func(*http.Request) bool {
	return func(r *http.Request) bool {
		q := r.URL.Query()
		object := q.Get("list-type") == "" && strings.Contains(r.URL.Path, s.key)
		switch s.verb {
		case vPut:
			return r.Method == http.MethodPut && object
		case vGet:
			return r.Method == http.MethodGet && object
		case vHead:
			return r.Method == http.MethodHead && object
		case vList:
			return r.Method == http.MethodGet && q.Get("list-type") != "" && strings.Contains(q.Get("prefix"), s.key)
		}
		return r.Method == http.MethodPost && q.Has("delete")
	}
}

// TestFaultMatrixOverDrivers plays the cells over both SDKs, a proxy that makes the faults, and a real server. The look at the bucket is a
// walk through the server's folder. The requests of a cell are shared between the SDKs, unless -matrix.all.
func TestFaultMatrixOverDrivers(t *testing.T) {
	eachDriver(t, func(t *testing.T, srv *s3server.Server, url, _ string) {
		for n, row := range faultMatrix {
			for i, cell := range row.cells {
				spots := onePerVerb(cell.at)
				if !*allOnWire {
					spots = everySecond(spots, n+i+len(url)) // the schemes' lengths differ by two, and by one with minio's
				}
				if len(spots) == 0 {
					continue
				}
				t.Run(row.name+"/"+matrixOps[i].name, func(t *testing.T) {
					t.Parallel()
					c := newWireCase(t, srv, url, row, matrixOps[i])
					for _, s := range spots {
						c.playWire(s)
					}
				})
			}
		}
	})
}

// onePerVerb are the first spots of each verb and key.
func onePerVerb(spots []strike) (out []strike) {
	seen := map[string]bool{}
	for _, s := range spots {
		if k := fmt.Sprint(s.verb, s.key); !seen[k] {
			seen[k], out = true, append(out, s)
		}
	}
	return out
}

func everySecond(spots []strike, from int) (out []strike) {
	for i, s := range spots {
		if (i+from)%2 == 0 {
			out = append(out, s)
		}
	}
	return out
}

func newWireCase(t *testing.T, srv *s3server.Server, url string, row matrixRow, op matrixOp) *wireCase {
	c := &wireCase{matrixCase: &matrixCase{t: t, op: op, row: row}, srv: srv, proxy: s3server.StartProxy(t, srv), bucket: srv.Bucket}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	prefix := fmt.Sprintf("m%x", h.Sum64())
	if row.name == bucketGone {
		c.bucket = prefix
		if err := srv.CreateBucket(t.Context(), c.bucket); err != nil {
			t.Fatal(err)
		}
	}
	patience, attempts := 10*time.Second, 2
	if row.name == "timeout" {
		patience, attempts = 400*time.Millisecond, 4 // a loaded machine's server may be as slow once
	}
	store, err := objstore.Open(t.Context(), strings.Replace(c.proxy.Via(srv, url), "//"+srv.Bucket, "//"+c.bucket, 1), objstore.OpenOptions{
		Retry:     objstore.RetryPolicy{MaxAttempts: attempts, BaseBackoff: time.Millisecond},
		Deadlines: objstore.Deadlines{Put: patience, Get: patience, Head: patience, List: patience, Delete: patience},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.w = op.world(t, func(w *world) {
		w.clock.mu.Lock()
		w.clock.now = time.Now() // the server's times are real
		w.clock.mu.Unlock()
		w.opts.Clock = NewClockGuard(ClockOptions{Now: w.clock.Now, Boottime: w.clock.Boot, Events: w.rec.Emit})
		w.store = objstore.NewFaulty(store, 1)
		w.opts.Store, w.opts.Prefix = w.store, prefix
		w.walk = func() (map[string]int64, error) { return srv.Objects(c.bucket, prefix+"/") }
	})
	return c
}

// playWire plays a spot by the proxy.
func (c *wireCase) playWire(s strike) {
	c.t.Run(s.name, func(t *testing.T) {
		was := c.t
		defer func() { c.on(was) }()
		c.on(t)
		if c.row.name == bucketGone {
			c.playGone(s)
			return
		}
		var f *s3server.Fault
		var end func()
		c.play(s, func() {
			f = &s3server.Fault{Match: onWire(s), Pass: int64(s.skip)}
			f.Play, end = wireFaults[c.row.name](c)
			c.proxy.Set(s3server.Weather{Fault: f})
		}, func() {
			if f.Met() == 0 {
				t.Error("the fault was not met")
			}
			c.proxy.Set(s3server.Weather{})
			end()
		})
	})
}

// playGone takes the whole bucket away.
func (c *wireCase) playGone(s strike) {
	var back func() error
	c.play(s, func() {
		var err error
		if back, err = c.srv.HideBucket(c.bucket); err != nil {
			c.t.Fatal(err)
		}
	}, func() {
		if err := back(); err != nil {
			c.t.Fatal(err)
		}
	})
}
