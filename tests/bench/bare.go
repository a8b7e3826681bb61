package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// bareHeadBytes is about what a Fetch reply with one partition carries before its records.
const bareHeadBytes = 96

// serveBare is the other side of each comparison: it answers one connection after the other with the least work
// that moves the same bytes. Requests are a 4-byte size and that many bytes.
func serveBare(kind, path string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("bare ready %s\n", l.Addr())
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if kind == "sendfile" {
			err = bareSendfile(c.(*net.TCPConn), f)
		} else {
			err = bareAppend(c.(*net.TCPConn), f)
			err = errors.Join(err, f.Truncate(0)) // the next round takes fresh pages, as a log that grows does
		}
		_ = c.Close()
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			return err
		}
	}
}

// bareSendfile: the request is offset and length; the reply a size, a head and that range of the file.
func bareSendfile(c *net.TCPConn, f *os.File) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var req [20]byte
	head := make([]byte, 4+bareHeadBytes)
	for {
		if _, err := io.ReadFull(c, req[:]); err != nil {
			return err
		}
		off, n := int64(binary.BigEndian.Uint64(req[4:])), int(binary.BigEndian.Uint64(req[12:]))
		binary.BigEndian.PutUint32(head, uint32(bareHeadBytes+n))
		if _, err := c.Write(head); err != nil {
			return err
		}
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
			n -= sent
		}
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
