package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"varve/protocol"
	"varve/protocol/record"
)

const (
	// produceVersion 9 and fetchVersion 12 name topics, so no ids are needed; the shape is that of today's clients.
	produceVersion = 9
	fetchVersion   = 12
	// discardBytesMax is thrown away by one system call.
	discardBytesMax = 8 << 20
	// servingWait bounds how long a broker may take until it knows all of its topics.
	servingWait = 10 * time.Minute
)

// conn is the raw client.
type conn struct {
	net.Conn
	raw  syscall.RawConn
	in   *bufio.Reader
	left int // bytes of the reply that are not read yet
}

// discarded is where MSG_TRUNC pretends to read to; nothing is ever written there.
var discarded = make([]byte, discardBytesMax)

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{Conn: c, raw: raw, in: bufio.NewReaderSize(c, 4096)}, nil
}

// begin reads the size of the next reply.
func (c *conn) begin() error {
	c.left = 4
	size, err := c.take(4)
	if err == nil {
		c.left = int(binary.BigEndian.Uint32(size))
	}
	return err
}

// take reads n bytes of the reply; they are valid until the next call.
func (c *conn) take(n int) ([]byte, error) {
	if n > c.left {
		return nil, fmt.Errorf("%d bytes wanted of a reply that has %d left", n, c.left)
	}
	b, err := c.in.Peek(n)
	if err != nil {
		return nil, err
	}
	c.left -= n
	_, err = c.in.Discard(n)
	return b, err
}

// uvarint reads a number as flexible versions write lengths.
func (c *conn) uvarint() (v uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := c.take(1)
		if err != nil {
			return 0, err
		}
		v |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("a length of more than 64 bits")
}

// discard drops n bytes of the reply. What is still in the kernel is never copied out of it (MSG_TRUNC, tcp(7)).
func (c *conn) discard(n int) error {
	if n > c.left {
		return fmt.Errorf("%d bytes to drop of a reply that has %d left", n, c.left)
	}
	c.left -= n
	k, err := c.in.Discard(min(n, c.in.Buffered()))
	if err != nil {
		return err
	}
	for n -= k; n > 0; {
		var got int
		var rerr error
		err := c.raw.Read(func(fd uintptr) bool {
			for {
				got, _, rerr = unix.Recvfrom(int(fd), discarded[:min(n, len(discarded))], unix.MSG_TRUNC)
				if rerr != unix.EINTR {
					return rerr != unix.EAGAIN
				}
			}
		})
		if err = errors.Join(err, rerr); err != nil {
			return err
		}
		if got == 0 {
			return io.ErrUnexpectedEOF
		}
		n -= got
	}
	return nil
}

// reply reads a whole reply: at most headMax bytes are returned, the rest is dropped.
func (c *conn) reply(headMax int) (head []byte, err error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	if head, err = c.take(min(headMax, c.left)); err != nil {
		return nil, err
	}
	if c.left > 0 {
		head = append([]byte{}, head...)
		err = c.discard(c.left)
	}
	return head, err
}

func appendRequest(dst []byte, r kmsg.Request, correlation int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(dst, r, correlation)
}

// call is a request and its reply.
func (c *conn) call(r kmsg.Request) (kmsg.Response, error) {
	if _, err := c.Write(appendRequest(nil, r, 1)); err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	body := make([]byte, c.left)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, err
	}
	head := 4
	if r.IsFlexible() && r.Key() != int16(kmsg.ApiVersions) {
		head++ // no tags
	}
	resp := r.ResponseKind()
	return resp, resp.ReadFrom(body[head:])
}

// newBatch encodes the one batch that is produced again and again. Values are text-like: half of each compresses away.
func newBatch(s shape) ([]byte, error) {
	b := record.NewBuilder(record.Options{Codec: s.codec, Level: record.DefaultLevel})
	rnd := rand.New(rand.NewPCG(1, 2))
	now := time.Now().UnixMilli()
	value := make([]byte, s.bytes)
	for range s.records {
		for i := range value {
			value[i] = 'a'
			if i%2 == 0 {
				value[i] += byte(rnd.IntN(16))
			}
		}
		if err := b.Add(now, nil, value); err != nil {
			return nil, err
		}
	}
	return b.Batch()
}

// produceFrame encodes a request with one batch for each of the partitions.
func produceFrame(topic string, acks int16, batch []byte, partitions ...int32) []byte {
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = n, batch
		t.Partitions = append(t.Partitions, p)
	}
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = produceVersion, acks, 30_000
	r.Topics = append(r.Topics, t)
	return appendRequest(nil, r, partitions[0])
}

// checkProduced reads the error codes of a v9 reply with one topic.
func checkProduced(reply []byte) error {
	// Of a partition without an error: index 4, error 2, offset 8, append time 8, log start 8, no record errors, no message, no tags.
	const each = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
	at := 4 + 1 + 1 // correlation, tags, topics
	if len(reply) <= at || len(reply) <= at+int(reply[at]) {
		return fmt.Errorf("a produce reply of %d bytes", len(reply))
	}
	at += int(reply[at]) // the length of the name, plus one for the length's own byte
	n := int(reply[at]) - 1
	for at++; n > 0; n-- {
		if len(reply) < at+each {
			return fmt.Errorf("a produce reply of %d bytes that lacks %d partitions", len(reply), n)
		}
		if code := int16(binary.BigEndian.Uint16(reply[at+4:])); code != 0 {
			return protocol.ErrorCode(code)
		}
		at += each
	}
	return nil
}

// awaitServing returns once the broker answers Metadata with itself as leader, and ListOffsets, for every partition of the
// topics, by number of partitions.
func awaitServing(ctx context.Context, addr string, topics map[string]int) error {
	deadline := time.Now().Add(servingWait)
	for {
		err := serving(addr, topics)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not serving after %v: %w", servingWait, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func serving(addr string, topics map[string]int) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	m := kmsg.NewPtrMetadataRequest()
	m.Version = 12
	m.Topics = []kmsg.MetadataRequestTopic{}
	l := kmsg.NewPtrListOffsetsRequest()
	l.Version, l.ReplicaID = 7, -1
	for name, n := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		m.Topics = append(m.Topics, t)
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic = name
		for p := range n {
			lp := kmsg.NewListOffsetsRequestTopicPartition()
			lp.Partition, lp.Timestamp, lp.CurrentLeaderEpoch = int32(p), -1, -1
			lt.Partitions = append(lt.Partitions, lp)
		}
		l.Topics = append(l.Topics, lt)
	}
	resp, err := c.call(m)
	if err != nil {
		return err
	}
	if err := allLed(resp.(*kmsg.MetadataResponse), topics); err != nil || len(topics) == 0 {
		return err
	}
	resp, err = c.call(l)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, protocol.ErrorCode(p.ErrorCode))
			}
		}
	}
	return nil
}

func allLed(m *kmsg.MetadataResponse, topics map[string]int) error {
	if len(m.Brokers) == 0 || len(m.Topics) != len(topics) {
		return fmt.Errorf("%d brokers and %d topics", len(m.Brokers), len(m.Topics))
	}
	for _, t := range m.Topics {
		if t.ErrorCode != 0 || t.Topic == nil || len(t.Partitions) != topics[*t.Topic] {
			return fmt.Errorf("a topic of %d partitions: %w", len(t.Partitions), protocol.ErrorCode(t.ErrorCode))
		}
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 {
				return fmt.Errorf("%s-%d has no leader: %w", *t.Topic, p.Partition, protocol.ErrorCode(p.ErrorCode))
			}
		}
	}
	return nil
}
