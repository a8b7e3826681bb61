// Package protocol is the wire format of Apache Kafka as this broker speaks it:
// request and response headers, the one table of advertised API keys and
// versions, error codes, ids, and the kinds of error that the rest of the
// program tells apart. Messages themselves are franz-go's kmsg structs; only
// the Fetch response has an encoder of its own, because kmsg would copy the
// records and this broker sends them as file ranges ([Span]).
//
// # Invariants
//
//   - Nothing here panics on bytes from the network. [ParseHeader] and [Decode]
//     answer every input with a value or an error.
//   - A request is walked by a schema (schema.go, schemas.go) before kmsg sees it:
//     every length and count is checked against the bytes that are left, and
//     what kmsg will allocate is estimated and held under
//     [DecodeFreeBytes] + [DecodeMaxFactor] x len(body). The schemas are held
//     against kmsg for all advertised versions by a property test.
//   - Request fields decoded by kmsg never alias the frame, but for record bytes
//     of Produce, which alias it on purpose.
//   - A [Span]'s Release is called exactly once by whoever took the span over;
//     this package only passes spans through.
//   - [APIs] is what ApiVersions advertises; [Supported] is what is accepted.
//     They differ in Produce only: versions 0-2 are advertised, as Apache Kafka
//     does, because older librdkafka stops compressing otherwise, and refused.
//
// # Crash cases
//
// None: the package has no state and does no I/O.
//
// # Non-goals
//
// Reading from and writing to sockets (broker/netio), handling of requests
// (broker/api), client-side negotiation, message formats older than magic 2.
//
// Sources: Apache Kafka's message definitions (clients/src/main/resources/
// common/message), Errors.java, RequestHeader.java, ApiKeys.java; KIP-482
// (flexible versions), KIP-511 (ApiVersions of an unknown version).
package protocol
