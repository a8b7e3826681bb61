package netio

import "sync/atomic"

// Stats are counters since the start, except where they say "now".
type Stats struct {
	Connections        int64 // open now
	Accepted           int64
	RefusedConnections int64 // over a bound
	BytesIn            int64 // request frames with their size bytes
	BytesOut           int64
	SendfileBytes      int64 // part of BytesOut that never passed through this process
	ColdReads          int64 // of file ranges that were not in memory
	Requests           int64
	InFlightBytes      int64 // now
	RefusedFrames      int64 // a size outside the bounds
	HandlerPanics      int64
	FailedConnections  int64 // closed for a reason of ours: stalled, refused, panicked, short file
	IdleClosed         int64
	SuppressedEvents   int64 // not emitted because hostile peers caused too many
}

type counters struct {
	connections, accepted, refusedConnections atomic.Int64
	bytesIn, bytesOut, sendfileBytes          atomic.Int64
	requests, refusedFrames, handlerPanics    atomic.Int64
	coldReads                                 atomic.Int64
	failed, idleClosed, suppressed            atomic.Int64
}

// Stats returns the counters. Each is exact, together they are not one moment.
func (s *Server) Stats() Stats {
	return Stats{
		Connections:        s.n.connections.Load(),
		Accepted:           s.n.accepted.Load(),
		RefusedConnections: s.n.refusedConnections.Load(),
		BytesIn:            s.n.bytesIn.Load(),
		BytesOut:           s.n.bytesOut.Load(),
		SendfileBytes:      s.n.sendfileBytes.Load(),
		ColdReads:          s.n.coldReads.Load(),
		Requests:           s.n.requests.Load(),
		InFlightBytes:      s.budget.inUse(),
		RefusedFrames:      s.n.refusedFrames.Load(),
		HandlerPanics:      s.n.handlerPanics.Load(),
		FailedConnections:  s.n.failed.Load(),
		IdleClosed:         s.n.idleClosed.Load(),
		SuppressedEvents:   s.n.suppressed.Load(),
	}
}
