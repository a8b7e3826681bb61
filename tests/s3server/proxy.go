package s3server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// Weather is what a Proxy does to the requests that pass it. The zero value is fair.
type Weather struct {
	Latency     time.Duration // before each request goes on
	BytesPerSec int64         // of all bodies together, each way; 0 is unbounded
	EachPerSec  int64         // bytes a second of each request's bodies, as S3 bounds a connection; 0 is unbounded
	Unavailable int           // so many requests are answered 503 SlowDown
	Resets      int           // so many requests have their connection reset
	ResetAfter  int64         // bytes of answer (or, for uploads, of request) before a reset
	Blackhole   bool          // requests are taken and never answered
	// Answer may answer a request itself, and says whether it did; nil answers none. It must leave others' bodies unread.
	Answer func(http.ResponseWriter, *http.Request) bool
	Fault  *Fault // what happens to some requests; nil is nothing
}

// Proxy is an HTTP proxy in front of a Server. Signatures stay valid: the Host header
// is passed on.
type Proxy struct {
	Endpoint string // http://127.0.0.1:port

	srv *http.Server
	wg  sync.WaitGroup

	up, down *rate.Limiter // of all bodies together

	mu      sync.Mutex
	weather Weather
	changed chan struct{} // closed by each Set
}

const proxyChunkBytes = 16 << 10

// NewProxy starts a proxy to endpoint (http://host:port).
func NewProxy(endpoint string) (*Proxy, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		Endpoint: "http://" + l.Addr().String(), changed: make(chan struct{}),
		up: rate.NewLimiter(rate.Inf, proxyChunkBytes), down: rate.NewLimiter(rate.Inf, proxyChunkBytes),
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		Transport:    &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, ExpectContinueTimeout: time.Second},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.srv = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(forward, w, r) }),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	p.wg.Go(func() { p.srv.Serve(l) }) // ends by Close
	return p, nil
}

// StartProxy is NewProxy for one test.
func StartProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	p, err := NewProxy(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	running.Store(p.Endpoint, s)
	t.Cleanup(func() {
		running.Delete(p.Endpoint)
		p.Close()
	})
	return p
}

// Via replaces the server's own endpoint in a tier URL by the proxy's.
func (p *Proxy) Via(s *Server, tierURL string) string {
	return strings.Replace(tierURL, url.QueryEscape(s.Endpoint), url.QueryEscape(p.Endpoint), 1)
}

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.Set(Weather{})
	p.srv.Close()
	p.wg.Wait()
}

// Set changes the weather; requests in a blackhole are dropped.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	for _, lim := range []*rate.Limiter{p.up, p.down} {
		lim.SetLimit(rate.Inf)
		if w.BytesPerSec > 0 {
			lim.SetLimit(rate.Limit(w.BytesPerSec))
			lim.SetBurst(burstBytes(w.BytesPerSec))
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// burstBytes is 10 ms of a rate, so that oversleeping costs nothing.
func burstBytes(perSec int64) int { return int(max(proxyChunkBytes, perSec/100)) }

// Left says how many 503 answers and resets are still to come.
func (p *Proxy) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather.Unavailable + p.weather.Resets
}

// next is the weather for one request: counted faults are used up.
func (p *Proxy) next() (w Weather, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, changed = p.weather, p.changed
	switch {
	case w.Unavailable > 0:
		p.weather.Unavailable--
		w.Resets = 0
	case w.Resets > 0:
		p.weather.Resets--
	}
	return w, changed
}

type connKey struct{}

func (p *Proxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	weather, changed := p.next()
	if weather.Latency > 0 {
		select {
		case <-r.Context().Done():
		case <-time.After(weather.Latency):
		}
	}
	if weather.Blackhole {
		select {
		case <-r.Context().Done():
		case <-changed:
		}
		panic(http.ErrAbortHandler)
	}
	if weather.Unavailable > 0 {
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("Connection", "close") // the body was not read
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>`)
		return
	}
	if weather.Answer != nil && weather.Answer(w, r) {
		return
	}
	if weather.Fault != nil && weather.Fault.meets(r) {
		weather.Fault.Play(w, r, forward)
		return
	}
	flow := &flow{ctx: r.Context(), resetAfter: -1}
	if weather.Resets > 0 {
		flow.resetAfter = weather.ResetAfter
	}
	if weather.EachPerSec > 0 {
		flow.own = rate.NewLimiter(rate.Limit(weather.EachPerSec), burstBytes(weather.EachPerSec))
	}
	flow.conn, _ = r.Context().Value(connKey{}).(*net.TCPConn)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &flowBody{ReadCloser: r.Body, f: flow, lim: p.up}
	}
	forward.ServeHTTP(&flowWriter{ResponseWriter: w, f: flow, lim: p.down}, r)
	if weather.Resets > 0 {
		flow.reset() // the answer was shorter than ResetAfter
	}
}

// flow shapes the bodies of one request and resets its connection.
type flow struct {
	ctx        context.Context
	conn       *net.TCPConn
	resetAfter int64         // < 0: never
	own        *rate.Limiter // nil: only what all bodies share
}

var errReset = errors.New("reset by proxy")

// pass waits for n bytes to be allowed through.
func (f *flow) pass(lim *rate.Limiter, n int) error {
	if f.resetAfter >= 0 {
		if f.resetAfter -= int64(n); f.resetAfter < 0 {
			return errReset
		}
	}
	if f.own != nil {
		if err := f.own.WaitN(f.ctx, n); err != nil {
			return err
		}
	}
	return lim.WaitN(f.ctx, n)
}

// reset makes the kernel send RST instead of FIN.
func (f *flow) reset() {
	if f.conn != nil {
		f.conn.SetLinger(0)
	}
	panic(http.ErrAbortHandler)
}

type flowBody struct {
	io.ReadCloser
	f   *flow
	lim *rate.Limiter
}

func (b *flowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), proxyChunkBytes)])
	if n > 0 {
		if ferr := b.f.pass(b.lim, n); ferr != nil {
			return 0, ferr // the transport fails, and the error handler aborts
		}
	}
	return n, err
}

type flowWriter struct {
	http.ResponseWriter
	f   *flow
	lim *rate.Limiter
}

// Unwrap gives http.ResponseController the real writer.
func (w *flowWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *flowWriter) Write(p []byte) (written int, err error) {
	for written < len(p) {
		chunk := p[written:min(len(p), written+proxyChunkBytes)]
		if err := w.f.pass(w.lim, len(chunk)); err != nil {
			http.NewResponseController(w.ResponseWriter).Flush()
			w.f.reset()
		}
		n, err := w.ResponseWriter.Write(chunk)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
