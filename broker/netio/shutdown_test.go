package netio

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"varve/protocol"
)

// Requests in flight finish and their replies leave before Shutdown returns.
func TestShutdownDrains(t *testing.T) {
	var wg sync.WaitGroup
	var r releases
	started := make(chan struct{}, 10)
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		reply := answer(frame)
		reply.Spans[0] = r.track(reply.Spans[0])
		started <- struct{}{}
		wg.Go(func() {
			time.Sleep(100 * time.Millisecond)
			done(reply)
		})
	})})
	c, idle := s.dial(), s.dial()
	half := s.dial()
	half.send(requestFrame(fetch, 1, make([]byte, 100))[:50])
	for i := range int32(3) {
		c.send(requestFrame(produce, i, nil))
		<-started
	}
	begun := time.Now()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Fatalf("took %v", took)
	}
	for want := range uint32(3) {
		if got := binary.BigEndian.Uint32(c.recv()); got != want {
			t.Fatalf("reply %d, want %d", got, want)
		}
	}
	c.mustClose()
	idle.mustClose()
	half.mustClose()
	if nc, err := net.Dial("tcp", s.addr); err == nil {
		nc.Close()
		t.Fatal("still listening")
	}
	wg.Wait()
	r.check(t)
	if n := s.Stats().FailedConnections; n != 0 {
		t.Fatalf("%d connections failed", n)
	}
}

// Long polls end when the server drains: they have what they have.
func TestShutdownEndsLongPolls(t *testing.T) {
	polling := make(chan struct{})
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
		close(polling)
		<-c.Drain().Done()
		done(answer(frame))
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 5, nil))
	<-polling
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := binary.BigEndian.Uint32(c.recv()); got != 5 {
		t.Fatal(got)
	}
}

// What does not finish in time is cut, its reply dropped, its spans released.
func TestShutdownCuts(t *testing.T) {
	dones := make(chan func(Reply), 1)
	var r releases
	s := start(t, Options{Handler: handlerFunc(func(ctx context.Context, _ *Conn, frame []byte, done func(Reply)) {
		if keyOf(frame) == fetch {
			<-ctx.Done()
			done(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan([]byte("too late")))}})
			return
		}
		dones <- done
	})})
	a, b := s.dial(), s.dial()
	a.send(requestFrame(produce, 1, nil))
	b.send(requestFrame(fetch, 1, nil))
	done := <-dones
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	a.mustClose()
	b.mustClose()
	done(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan([]byte("too late")))}})
	r.check(t)
}

// Muted and budget-bound readers do not hold up a shutdown.
func TestShutdownWakesMuted(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		reply := answer(frame)
		reply.MuteFor = time.Hour
		done(reply)
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	c.recv()
	begun := time.Now()
	if err := s.Shutdown(t.Context()); err != nil || time.Since(begun) > 3*time.Second {
		t.Fatalf("%v after %v", err, time.Since(begun))
	}
}

func TestShutdownWhileBudgetIsUsedUp(t *testing.T) {
	dones := make(chan func(Reply), 8)
	s := start(t, Options{MaxInFlightBytes: 1000, Handler: handlerFunc(func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
		c.Known()
		dones <- done
	})})
	for i := range int32(4) {
		s.dial().send(requestFrame(produce, i, make([]byte, 5000)))
	}
	done := <-dones
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(50 * time.Millisecond)
		done(corrReply(1))
	})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// Peers that come and go at any moment, requests of every kind in flight, and a
// shutdown in the middle: every span is released once, nothing is left.
func TestChurn(t *testing.T) {
	f, _ := dataFile(t, 1<<20)
	var r releases
	var wg sync.WaitGroup
	s := start(t, Options{StallTimeout: 200 * time.Millisecond, MaxInFlightBytes: 300_000, Handler: handlerFunc(
		func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
			c.Known()
			n := int64(1 + rand.IntN(200_000))
			reply := Reply{Close: rand.IntN(50) == 0, Spans: []protocol.Span{
				r.track(protocol.MemSpan(binary.BigEndian.AppendUint32(nil, uint32(n)))),
				r.track(protocol.Span{File: f, Off: rand.Int64N(800_000), Len: n}),
			}}
			switch rand.IntN(20) {
			case 0:
				protocol.ReleaseSpans(reply.Spans)
				panic("now and then")
			case 1, 2, 3, 4, 5, 6, 7:
				wg.Go(func() {
					time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
					done(reply)
				})
			default:
				done(reply)
			}
		})})
	var peers sync.WaitGroup
	for w := range 12 {
		peers.Go(func() { churnPeer(s.addr, uint64(w)) })
	}
	time.Sleep(1500 * time.Millisecond)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	peers.Wait()
	wg.Wait()
	r.check(t)
}

func churnPeer(addr string, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return // the server is gone
		}
		_ = nc.SetDeadline(time.Now().Add(2 * time.Second))
		for range rnd.IntN(20) {
			frame := requestFrame(int16(rnd.IntN(2)), 1, make([]byte, rnd.IntN(150_000)))
			if _, err := nc.Write(frame); err != nil {
				break
			}
			if rnd.IntN(2) == 0 {
				_, _ = nc.Read(make([]byte, 100_000))
			}
		}
		nc.Close()
	}
}
