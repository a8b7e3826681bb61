// Package netio moves Kafka frames between sockets and a [Handler]: listeners,
// connections, pipelining, and replies made of memory and file ranges.
//
// One goroutine per connection reads frames and calls the handler. The handler
// answers through done, from any goroutine. A reply that is ready when the
// handler returns is written by the reader itself; one that comes later is
// tried without blocking by whoever brings it and, when the socket is full or
// the reply comes from a file, finished by a writer goroutine that lives only
// until the queue has nothing ready. Replies to Produce requests that arrived
// together leave together: one write, and one wake-up of the client, for all;
// of large requests three at most. A reply is held for the next only while that
// one is there whole: before anything that could wait for the peer, the budget
// or other replies, what is held is sent. Replies that come late leave with
// those behind them that are ready.
//
// Invariants:
//   - Replies leave in the order of their requests. The next frame is handed on
//     before the previous one is answered only if both are Produce.
//   - Nothing is allocated on a peer's word: a frame's size is checked against
//     the bounds before its body is read, and buffers of large frames grow with
//     the bytes that have arrived.
//   - What is kept of memory for large frames is bounded, and goes when none come.
//   - Everything is bounded: connections (in all and per address), requests and
//     request bytes in flight (per connection and per broker; held by not
//     reading), the time a peer may be idle, the time a frame may take, the
//     time a peer may leave a reply unread.
//   - Release of every span of every reply is called exactly once, also when
//     the connection fails, the handler panics or the server shuts down.
//   - A reply is written whole or its connection is closed: a file that is
//     shorter than its span promised never shifts the bytes that follow.
//   - File ranges are sent with explicit offsets, so that any number of
//     connections may share one open file.
//   - What is not in memory is read in one of 32 places, however many
//     connections want such ranges; those that are in memory never wait for it.
//   - A panic in the handler costs its connection, not the process.
//
// Crash cases: nothing is stored. A peer that vanishes is found by the idle
// time, by TCP keep-alive or by a failed write; requests of its that are still
// in flight end in the handler, their replies are dropped.
//
// Non-goals: parsing requests beyond the API key (the handler does), quotas and
// authentication (the handler's, by way of Reply.MuteFor and Reply.Close).
package netio
