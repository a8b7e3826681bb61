package s3server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
)

// Fault is what an S3 server, or what lies before it, does to requests for as long as it is the weather.
type Fault struct {
	Match func(*http.Request) bool // which requests
	Pass  int64                    // of which so many go through first
	Play  Play

	seen, met atomic.Int64
}

// Play answers a request that meets a fault, in place of forward, or with what forward answers.
type Play func(w http.ResponseWriter, r *http.Request, forward http.Handler)

func (f *Fault) meets(r *http.Request) bool {
	if !f.Match(r) || f.seen.Add(1) <= f.Pass {
		return false
	}
	f.met.Add(1)
	return true
}

// Met is how many requests met the fault.
func (f *Fault) Met() int64 { return f.met.Load() }

// Refuse answers with an S3 error.
func Refuse(status int, code string) Play {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Connection", "close") // the body may be unread
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>by the proxy</Message></Error>`, code)
		}
	}
}

// Hang takes the request and never answers.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// answer is what a forwarded request brought.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// passOn sends the answer with another body. A body that is shorter than it says ends the connection.
func (a *answer) passOn(w http.ResponseWriter, body []byte) {
	for k, v := range a.header {
		w.Header()[k] = v
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // the client may be gone
}

func ask(r *http.Request, forward http.Handler) *answer {
	a := &answer{header: http.Header{}, status: http.StatusOK}
	forward.ServeHTTP(a, r)
	return a
}

// reset ends the client's connection by RST.
func reset(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	panic(http.ErrAbortHandler)
}

// Reset breaks off in the middle: of what is sent, which then does not reach the server; or else of the answer.
func Reset(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if r.ContentLength > 0 {
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		reset(r)
	}
	a := ask(r, forward)
	a.passOn(w, a.body.Bytes()[:a.body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	reset(r)
}

// WrongBytes turns a bit: of what is sent, or else of the answer's body.
func WrongBytes(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	turn := func(b []byte) []byte {
		if len(b) > 0 {
			b[len(b)/2] ^= 1
		}
		return b
	}
	if r.ContentLength > 0 {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			reset(r)
		}
		r.Body = io.NopCloser(bytes.NewReader(turn(b)))
		forward.ServeHTTP(w, r)
		return
	}
	a := ask(r, forward)
	a.passOn(w, turn(a.body.Bytes()))
}

// Cut ends early, without a reset: what is sent, or else the answer's body.
func Cut(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if r.ContentLength > 0 {
		r.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength/2))
		forward.ServeHTTP(w, r)
		return
	}
	a := ask(r, forward)
	a.header.Set("Content-Length", fmt.Sprint(a.body.Len()))
	a.passOn(w, a.body.Bytes()[:a.body.Len()/2])
}

// LoseReply does what was asked, and resets the connection instead of answering.
func LoseReply(_ http.ResponseWriter, r *http.Request, forward http.Handler) {
	ask(r, forward)
	reset(r)
}

// Late keeps requests, whose senders think them lost, until Release.
type Late struct {
	mu   sync.Mutex
	kept []func()
}

// Play takes the request and resets its connection.
func (l *Late) Play(_ http.ResponseWriter, r *http.Request, forward http.Handler) {
	b, err := io.ReadAll(r.Body)
	if err == nil {
		later := r.Clone(context.WithoutCancel(r.Context()))
		later.Body = io.NopCloser(bytes.NewReader(b))
		l.mu.Lock()
		l.kept = append(l.kept, func() { ask(later, forward) })
		l.mu.Unlock()
	}
	reset(r)
}

// Release lets what was kept arrive, in order.
func (l *Late) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, send := range l.kept {
		send()
	}
	l.kept = nil
}

var (
	contentsElement = regexp.MustCompile(`(?s)<Contents>.*?</Contents>`)
	keyElement      = regexp.MustCompile(`<Key>([^<]*)</Key>`)
)

// StaleList answers listings without the keys that are not known.
func StaleList(known map[string]int64) Play {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		a := ask(r, forward)
		body := contentsElement.ReplaceAllFunc(a.body.Bytes(), func(e []byte) []byte {
			if m := keyElement.FindSubmatch(e); m != nil {
				if _, ok := known[string(m[1])]; !ok {
					return nil
				}
			}
			return e
		})
		a.header.Del("Content-Length")
		a.passOn(w, body)
	}
}

// PartialDelete removes every second key of a multi-delete from the server's folder and says of the others that they are left.
func (s *Server) PartialDelete(bucket string) Play {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		body, _ := io.ReadAll(r.Body) // what did not come names no key
		fmt.Fprint(w, `<?xml version="1.0"?><DeleteResult>`)
		for i, m := range keyElement.FindAllSubmatch(body, -1) {
			if i%2 == 1 && os.Remove(filepath.Join(s.dir, "data", bucket, filepath.FromSlash(string(m[1])))) == nil {
				fmt.Fprintf(w, `<Deleted>%s</Deleted>`, m[0])
				continue
			}
			fmt.Fprintf(w, `<Error>%s<Code>InternalError</Code><Message>by the proxy</Message></Error>`, m[0])
		}
		fmt.Fprint(w, `</DeleteResult>`)
	}
}

// HideBucket takes a bucket away, and returns what brings it back with all that it held.
func (s *Server) HideBucket(bucket string) (back func() error, err error) {
	from, to := filepath.Join(s.dir, "data", bucket), filepath.Join(s.dir, "hidden-"+bucket)
	return func() error { return os.Rename(to, from) }, os.Rename(from, to)
}
