// Package api answers Kafka requests: it turns frames into calls on replicas,
// controller and metadata, and their results into response frames. There is one
// file per API key, named by its number, that begins with the versions served
// and what is particular about them.
//
// Invariants:
//   - Every frame leads to exactly one call of done, whatever is in it.
//   - Only what the version table advertises is served. Another key or version
//     closes the connection at once, except ApiVersions, whose unknown versions
//     are answered with error 35 in a version 0 body without a look at the
//     request's body (KIP-511).
//   - A frame that does not parse closes the connection, as Kafka does; it
//     never panics.
//   - Nothing in a reply aliases the request's frame.
//   - A request that changes metadata waits no longer than its own timeout.
//   - Spans that a fetch brought are passed on to exactly one reply.
//
// Crash cases: nothing is stored here. A producer id block that was taken and
// not used up is lost with the process; ids are never given out twice. Topics
// waiting to be created automatically are forgotten; clients ask again. Fetch
// sessions are forgotten too: clients are told so and begin new ones.
//
// Non-goals: authentication, authorization and quotas (every client may do
// everything: the listeners are loopback or declared insecure), transactions.
package api
