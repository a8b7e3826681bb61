package netio

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"varve/protocol/event"
)

// Server owns listeners and connections.
type Server struct {
	opts   Options
	n      counters
	budget budget
	noise  *rate.Limiter // of events that peers can cause at will

	ctx    context.Context // ends when connections are cut
	cut    context.CancelFunc
	drain  context.Context // ends when Shutdown begins
	stop   context.CancelFunc
	nextID atomic.Uint64

	draining atomic.Bool
	disk     chan struct{} // places of those that read from the disk

	mu        sync.Mutex
	listeners []namedListener
	conns     map[*Conn]netip.Addr
	perIP     map[netip.Addr]int
	idle      chan struct{} // closed when draining and no connection is left
	wg        sync.WaitGroup
}

type namedListener struct {
	net.Listener
	name string
	was  string // congestion control that far peers get back; see unpace
}

// New returns a server that listens nowhere yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts:   o,
		budget: budget{limitBytes: o.MaxInFlightBytes},
		noise:  rate.NewLimiter(peerEventsPerSecond, peerEventsBurst),
		conns:  map[*Conn]netip.Addr{},
		perIP:  map[netip.Addr]int{},
		idle:   make(chan struct{}),
		disk:   make(chan struct{}, maxColdReads),
	}
	s.ctx, s.cut = context.WithCancel(context.Background())
	s.drain, s.stop = context.WithCancel(s.ctx)
	return s, nil
}

// Listen binds addr (host:port, port 0 for any) under a listener name.
// Connections queue in the kernel until Serve. The error is that of net.Listen:
// errors.Is(err, syscall.EADDRINUSE) when the port is taken.
func (s *Server) Listen(ctx context.Context, name, addr string) (net.Addr, error) {
	var was string
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		was = unpace(rc)
		return nil
	}}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.listeners = append(s.listeners, namedListener{Listener: l, name: name, was: was})
	s.mu.Unlock()
	s.opts.Events.Emit(ListenerOpened{Listener: name, Addr: l.Addr().String()})
	return l.Addr(), nil
}

// Serve accepts on all listeners until Shutdown.
func (s *Server) Serve() error {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	var g errgroup.Group
	for _, l := range listeners {
		g.Go(func() error { return s.accept(l) })
	}
	return g.Wait()
}

func (s *Server) accept(l namedListener) error {
	var backoff time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			backoff = 0
			s.admit(nc, l)
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			s.peerEvent(AcceptFailed{Listener: l.name, Error: err.Error()})
			backoff = min(max(2*backoff, 5*time.Millisecond), maxAcceptBackoffMs*time.Millisecond)
			select {
			case <-time.After(backoff):
			case <-s.drain.Done():
				return nil
			}
		}
	}
}

// admit starts a connection or closes it when it is over a bound.
func (s *Server) admit(nc net.Conn, l namedListener) {
	ip := remoteIP(nc)
	c := &Conn{ID: s.nextID.Add(1), Peer: nc.RemoteAddr().String(), Listener: l.name, srv: s, nc: nc}
	c.wake.L = &c.mu
	if bound, maxConns := s.register(c, ip, l.was); bound != "" {
		s.n.refusedConnections.Add(1)
		_ = nc.Close()
		s.peerEvent(ConnectionRefused{Listener: l.name, Peer: c.Peer, Bound: bound, Max: maxConns})
	}
}

// SetLimits changes how many connections there may be, in all and from one address, and from those with a bound of their own. 0
// is none. Those that are there stay.
func (s *Server) SetLimits(maxConnections, maxPerIP int, overrides map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.MaxConnections, s.opts.MaxConnectionsPerIP, s.opts.PerIPOverrides = maxConnections, maxPerIP, overrides
}

// register adds c and starts its reader. It returns the bound that forbids it.
func (s *Server) register(c *Conn, ip netip.Addr, was string) (bound string, maxConns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maxPerIP := s.opts.MaxConnectionsPerIP
	if n, ok := s.opts.PerIPOverrides[ip.String()]; ok {
		maxPerIP = n
	}
	switch {
	case s.draining.Load():
		return "shutdown", 0
	case len(s.conns) >= s.opts.MaxConnections:
		return "max.connections", s.opts.MaxConnections
	case s.perIP[ip] >= maxPerIP:
		return "max.connections.per.ip", maxPerIP
	}
	s.conns[c] = ip
	s.perIP[ip]++
	s.n.connections.Add(1)
	s.n.accepted.Add(1)
	c.br = bufio.NewReaderSize(c.nc, helloReadBufferBytes)
	if sc, ok := c.nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.pace(was)
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	c.drain, c.stop = context.WithCancel(s.drain)
	s.wg.Go(func() {
		defer s.unregister(c, ip)
		c.serve()
	})
	return "", 0
}

func (s *Server) unregister(c *Conn, ip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.perIP[ip]--; s.perIP[ip] == 0 {
		delete(s.perIP, ip)
	}
	s.n.connections.Add(-1)
	if s.draining.Load() && len(s.conns) == 0 {
		close(s.idle)
	}
}

// Shutdown stops accepting, lets requests in flight finish and their replies
// leave, and closes every connection. When ctx ends first the rest is cut; the
// error is then ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginDrain()
	select {
	case <-s.idle:
		s.wg.Wait()
		s.cut()
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.shut(errDraining)
	}
	s.cut()
	// A handler that ignores its context must not hold the process for ever.
	select {
	case <-s.idle:
	case <-time.After(forcedCloseGraceMs * time.Millisecond):
	}
	return context.Cause(ctx)
}

func (s *Server) beginDrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Swap(true) {
		return
	}
	for _, l := range s.listeners {
		_ = l.Close()
	}
	if len(s.conns) == 0 {
		close(s.idle)
	}
	s.stop()
	for c := range s.conns {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	}
}

// peerEvent emits an event that a peer can cause at will, within bounds.
func (s *Server) peerEvent(e event.Event) {
	if !s.noise.Allow() {
		s.n.suppressed.Add(1)
		return
	}
	s.opts.Events.Emit(e)
}

func remoteIP(nc net.Conn) netip.Addr {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
