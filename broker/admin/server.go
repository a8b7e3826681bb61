package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	maxConnections       = 64
	maxHeaderBytes       = 16 << 10
	maxBodyBytes         = 64 << 10
	maxMetricsRequests   = 4 // at once
	readHeaderTimeoutMs  = 5_000
	readTimeoutMs        = 10_000
	writeTimeoutMs       = 60_000
	idleTimeoutMs        = 60_000
	shutdownTimeoutMs    = 2_000
	metricsTimeoutMs     = 30_000
	pageTimeFormatLayout = "2006-01-02 15:04:05 MST"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Server answers HTTP requests. The listener is open from Listen on; nothing is answered before Run.
type Server struct {
	src     atomic.Pointer[Sources]
	started time.Time
	ln      net.Listener
	http    *http.Server

	verifying atomic.Bool // a verification of the tier is under way
}

// Listen opens addr (host:port) and prepares to answer from src. The error is that of net.Listen.
func Listen(addr string, src Sources) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{started: src.now(), ln: limit(ln, maxConnections)}
	s.Update(src)
	s.http = &http.Server{
		Handler:           http.MaxBytesHandler(secure(s.routes()), maxBodyBytes),
		ReadHeaderTimeout: ms(readHeaderTimeoutMs),
		ReadTimeout:       ms(readTimeoutMs),
		WriteTimeout:      ms(writeTimeoutMs),
		IdleTimeout:       ms(idleTimeoutMs),
		MaxHeaderBytes:    maxHeaderBytes,
	}
	return s, nil
}

// Update changes where the numbers come from: a broker answers /livez before it has parts to tell about.
func (s *Server) Update(src Sources) { s.src.Store(&src) }

func (s *Server) sources() Sources { return *s.src.Load() }

// Addr returns the address that is open, with the port that the system chose where 0 was asked for.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Run answers requests until ctx ends, then lets those under way finish for up to two seconds. It returns nil then, or the
// error that ended it before. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { served <- s.http.Serve(s.ln) })
	select {
	case err := <-served:
		return fmt.Errorf("http: %w", err)
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), ms(shutdownTimeoutMs))
	defer cancel()
	if err := s.http.Shutdown(bound); err != nil {
		return s.http.Close()
	}
	return nil
}

// Close closes the listener of a server that was never run.
func (s *Server) Close() error { return s.ln.Close() }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.sources().ready(); err != nil {
			text(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text(w, http.StatusOK, "ok")
	})
	mux.Handle("/metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // names that clients chose must not hide what else there is
		MaxRequestsInFlight: maxMetricsRequests,
		Timeout:             ms(metricsTimeoutMs),
	}))
	mux.HandleFunc("/api/v1/cluster", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.cluster()) })
	mux.HandleFunc("/api/v1/topics", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.topics()) })
	mux.HandleFunc("/api/v1/tier/status", func(w http.ResponseWriter, _ *http.Request) {
		if s.sources().Tier == nil {
			writeProblem(w, http.StatusNotFound, "this broker has no tier; start it with varve.tier.url set")
			return
		}
		writeJSON(w, s.tier())
	})
	mux.HandleFunc("/api/v1/tier/usage", s.usage)
	mux.HandleFunc("/api/v1/tier/verify", onlyPost(s.verify))
	mux.HandleFunc("/api/v1/tier/restore", s.restore)
	mux.HandleFunc("/api/v1/tier/release", onlyPost(s.release))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "there is no "+r.URL.Path+"; there are /api/v1/cluster, /api/v1/topics, /api/v1/tier/status, /api/v1/tier/usage, /api/v1/tier/restore and (POST) /api/v1/tier/verify and /api/v1/tier/release")
	})
	mux.HandleFunc("/{$}", s.page)
	return mux
}

// posts are the paths that change something or cost something; all others are only read.
var posts = map[string]bool{"/api/v1/tier/verify": true, "/api/v1/tier/restore": true, "/api/v1/tier/release": true}

// secure refuses everything but reads elsewhere than at posts, and tells browsers to guess nothing and run nothing.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !posts[r.URL.Path] {
			h.Set("Allow", "GET, HEAD")
			text(w, http.StatusMethodNotAllowed, "only GET and HEAD")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func text(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, line)
}

// limit lets at most n connections of ln be open at once; further ones wait in the kernel's queue.
func limit(ln net.Listener, n int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots     chan struct{}
	closed    chan struct{}
	closeOnce sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	var err error
	l.closeOnce.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

type limitedConn struct {
	net.Conn
	free func()
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.free()
	return err
}
