package netio

import (
	"context"
	"fmt"
	"math"
	"time"

	"varve/protocol"
	"varve/protocol/event"
)

// Handler serves requests.
type Handler interface {
	// Serve is called on the connection's reader goroutine, one frame at a time
	// (a frame is what follows the 4 size bytes). It calls done exactly once,
	// from any goroutine, before or after it returns. The frame is valid until
	// done is called: a reply must not alias it. ctx ends when the connection
	// is gone; see also Conn.Drain.
	Serve(ctx context.Context, c *Conn, frame []byte, done func(Reply))
}

// Reply is the answer to one request.
type Reply struct {
	Spans   []protocol.Span // the whole response frame, size bytes first; ownership passes to netio
	None    bool            // nothing is sent (Produce with acks=0)
	Close   bool            // the connection is closed once this and all earlier replies are sent
	Cause   error           // why, with Close: told as ConnectionFailed; nil when it needs no telling
	MuteFor time.Duration   // no further request is read for this long (throttling)
}

// Options of a Server. Zero fields take the defaults named beside them.
type Options struct {
	Handler Handler
	Events  event.Sink

	MaxFrameBytes             int // socket.request.max.bytes; default 100 MiB
	MaxPreHandshakeFrameBytes int // until Conn.Known; default 2 MiB, room for a first request of today's producers

	MaxConnections      int            // max.connections; default no bound
	MaxConnectionsPerIP int            // max.connections.per.ip; default no bound
	PerIPOverrides      map[string]int // max.connections.per.ip.overrides: IP address to bound

	MaxInFlightRequestsPerConn int   // default 1024
	MaxInFlightBytesPerConn    int64 // default 64 MiB; one frame is always let through
	MaxInFlightBytes           int64 // all connections together; default 512 MiB

	IdleTimeout  time.Duration // connections.max.idle.ms; default 10 minutes, negative for no bound
	StallTimeout time.Duration // for each frameStepBytes of a frame that has begun to arrive, and for each write to make progress; default 30 s
}

const (
	defaultMaxFrameBytes         = 100 << 20
	defaultPreHandshakeBytes     = 2 << 20
	defaultMaxInFlightRequests   = 1024
	defaultMaxInFlightBytesConn  = 64 << 20
	defaultMaxInFlightBytes      = 512 << 20
	defaultIdleTimeout           = 10 * time.Minute
	defaultStallTimeout          = 30 * time.Second
	maxFrameBytesLimit           = math.MaxInt32
	minFrameBytes                = 8 // API key, version, correlation id
	forcedCloseGraceMs           = 1000
	lingerMs                     = 250
	maxLingerBytes               = 1 << 20
	maxAcceptBackoffMs           = 1000
	peerEventsPerSecond          = 10
	peerEventsBurst              = 50
	connReadBufferBytes          = 4 << 10
	helloReadBufferBytes         = 512 // of the first helloFrames
	helloFrames                  = 6
	maxAsyncInlineBytes          = 64 << 10
	frameStepBytes               = 128 << 10
	firstFrameBytes              = 64 << 10
	maxTrustedFrameBytes         = 16 << 20
	largeStepBytes               = 4 << 20
	maxKeptLargeBytes            = 64 << 20 // by all connections together
	keepLargeSeconds             = 5
	maxExemptFrameBytes          = 1 << 20
	minWriteProgressBytes        = 64 << 10
	frameGrowFactor              = 4
	coalesceBytes                = 256 << 10
	maxCopiedMemoryBytes         = 32 << 10
	maxHeldReplies               = 32
	maxHeldLargeReplies          = 2
	minHeldLargeBytes            = 16 << 10
	maxMergedReplyBytes          = 2 << 10
	maxPreadBehindHeaderBytes    = 128 << 10
	sendfileEdgeBytes            = 16 << 10
	nearRTTMicros                = 250
	maxSendfileBytes             = 1 << 20
	maxColdReads                 = 32 // at one time
	coldStepBytes                = 128 << 10
	copyBytes                    = 256 << 10
	maxMemoryWriteBytes          = 256 << 10
	writeDeadlineRefreshFraction = 4
	idleDeadlineSlackFraction    = 16
)

// withDefaults fills zero fields. An error names the field that cannot be.
func (o Options) withDefaults() (Options, error) {
	if o.Handler == nil {
		return o, &protocol.InvariantError{What: "netio: no handler"}
	}
	def(&o.MaxFrameBytes, defaultMaxFrameBytes)
	def(&o.MaxPreHandshakeFrameBytes, min(defaultPreHandshakeBytes, o.MaxFrameBytes))
	def(&o.MaxConnections, math.MaxInt32)
	def(&o.MaxConnectionsPerIP, math.MaxInt32)
	def(&o.MaxInFlightRequestsPerConn, defaultMaxInFlightRequests)
	def(&o.MaxInFlightBytesPerConn, defaultMaxInFlightBytesConn)
	def(&o.MaxInFlightBytes, defaultMaxInFlightBytes)
	def(&o.IdleTimeout, defaultIdleTimeout)
	def(&o.StallTimeout, defaultStallTimeout)
	switch {
	case o.MaxFrameBytes < minFrameBytes || o.MaxFrameBytes > maxFrameBytesLimit:
		return o, fmt.Errorf("netio: MaxFrameBytes %d is outside %d to %d", o.MaxFrameBytes, minFrameBytes, maxFrameBytesLimit)
	case o.MaxPreHandshakeFrameBytes < minFrameBytes:
		return o, fmt.Errorf("netio: MaxPreHandshakeFrameBytes %d is below %d", o.MaxPreHandshakeFrameBytes, minFrameBytes)
	case o.MaxConnections < 0 || o.MaxConnectionsPerIP < 0 || o.MaxInFlightRequestsPerConn < 0 ||
		o.MaxInFlightBytesPerConn < 0 || o.MaxInFlightBytes < 0 || o.StallTimeout < 0:
		return o, fmt.Errorf("netio: negative bound in %+v", o)
	}
	return o, nil
}

func def[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
