package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// bareHeadBytes is about what a Fetch reply carries before the records of each partition.
	bareHeadBytes = 96
	// bareRequestBytes: a 4-byte size, offset and length.
	bareRequestBytes = 20
	// bareCongestion is the congestion control with which the loop is fastest: BBR, where the system has that, paces by timers,
	// and a connection that begins with it goes on so. varve chooses alike for clients as near as ours.
	bareCongestion = "reno"
)

// serveBare is the other side of each comparison: it answers each connection with the least work that moves the same
// bytes, on a goroutine of its own. Requests are a 4-byte size and that many bytes.
func serveBare(kind, path string) error {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var serr error
		err := raw.Control(func(fd uintptr) {
			serr = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, bareCongestion)
		})
		return errors.Join(err, serr)
	}}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("bare ready %s\n", l.Addr())
	serve := bareAppends(path)
	if kind == "gets" || kind == "relay" {
		if serve, err = bareReads(path, kind == "relay"); err != nil {
			return err
		}
	}
	if kind == "sendfile" {
		names, err := filepath.Glob(path)
		if err != nil || len(names) == 0 {
			return fmt.Errorf("no file is called %s: %w", path, err)
		}
		files := make([]*os.File, len(names))
		for i, name := range names {
			if files[i], err = os.Open(name); err != nil {
				return err
			}
		}
		serve = func(c *net.TCPConn) error { return bareSendfile(c, files) }
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		wg.Go(func() {
			err := serve(c.(*net.TCPConn))
			_ = c.Close()
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				fmt.Fprintln(os.Stderr, "bare:", err)
			}
		})
	}
}

// bareSendfile: the request is offset and length; the reply a size and, for each file, a head and that range.
func bareSendfile(c *net.TCPConn, files []*os.File) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var req [bareRequestBytes]byte
	head := make([]byte, 4+bareHeadBytes)
	for {
		if _, err := io.ReadFull(c, req[:]); err != nil {
			return err
		}
		from, n := int64(binary.BigEndian.Uint64(req[4:])), int(binary.BigEndian.Uint64(req[12:]))
		binary.BigEndian.PutUint32(head, uint32(len(files)*(bareHeadBytes+n)))
		for i, f := range files {
			lead := head
			if i > 0 {
				lead = head[4:]
			}
			if _, err := c.Write(lead); err != nil {
				return err
			}
			if err := sendRange(raw, f, from, n); err != nil {
				return err
			}
		}
	}
}

func sendRange(raw interface {
	Write(func(uintptr) bool) error
}, f *os.File, off int64, n int) error {
	for n > 0 {
		var sent int
		var serr error
		err := raw.Write(func(fd uintptr) bool {
			sent, serr = unix.Sendfile(int(fd), int(f.Fd()), &off, n)
			return serr != unix.EAGAIN
		})
		if err = errors.Join(err, serr); err != nil {
			return err
		}
		if sent == 0 {
			return io.ErrUnexpectedEOF
		}
		n -= sent
	}
	return nil
}

// bareAppends gives each connection a file of its own, which is gone when it ends: the next round takes fresh pages, as a
// log that grows does.
func bareAppends(path string) func(c *net.TCPConn) error {
	var conns atomic.Int64
	return func(c *net.TCPConn) error {
		f, err := os.Create(fmt.Sprintf("%s-%d", path, conns.Add(1)))
		if err != nil {
			return err
		}
		err = bareAppend(c, f)
		return errors.Join(err, os.Remove(f.Name()), f.Close())
	}
}

// bareAppend receives a frame, checks its CRC32C, appends it to the file and answers 8 bytes.
func bareAppend(c *net.TCPConn, f *os.File) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	var size [4]byte
	var buf []byte
	var pos int64
	var sink uint32
	for {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		sink ^= crc32.Checksum(buf, table)
		if _, err := f.WriteAt(buf, pos); err != nil {
			return err
		}
		pos += int64(n)
		var reply [8]byte
		binary.BigEndian.PutUint32(reply[:], 4)
		binary.BigEndian.PutUint32(reply[4:], sink)
		if _, err := c.Write(reply[:]); err != nil {
			return err
		}
	}
}
