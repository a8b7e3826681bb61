package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// proxy keeps a port open while the broker behind it comes and goes.
type proxy struct {
	ln net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex
	target string                // host:port of the broker
	conns  map[*net.TCPConn]bool // from clients
}

func newProxy() (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{ln: ln, conns: map[*net.TCPConn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

// aim leads new connections to a broker.
func (p *proxy) aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// close resets all connections and waits for them to end.
func (p *proxy) close() error {
	err := p.ln.Close()
	p.mu.Lock()
	for c := range p.conns {
		reset(c)
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve passes bytes both ways until one side ends; the client's connection is then reset. Without a broker that happens
// at the first request.
func (p *proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.conns[client] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
		reset(client)
	}()
	broker, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		// A connection that is reset before its client has seen it open counts as one that was refused.
		_, _ = client.Read(make([]byte, 1))
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(broker, client) // ends with either connection
		_ = broker.Close()
	})
	_, err = io.Copy(client, broker)
	reset(client)
	_ = errors.Join(err, broker.Close())
	up.Wait()
}

// reset closes a connection with RST, as a host whose process is gone does.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
