// Package edge sends calls that are wrong, or only just right, to a broker and notes the error codes that come back.
//
// Purpose: one list for varve and for Apache Kafka. Run sends it to any broker address and returns one line for each
// call: its name, the request as text, the codes of the answer. The golden file of tests/compat is what varve says; what
// Kafka says otherwise stands in the case, with the reason.
//
// Invariants: calls go out as raw frames of an exact version; the text of a request is taken from the request itself, with
// the ids that differ from run to run replaced by names; codes are sorted by what they are about, since brokers answer in
// any order. The broker is fresh, alone, has node id 1 and creates no topics by itself; topics are made at the start under
// fixed names and left behind.
//
// Crash cases: a connection that the broker closes is a result ("closed"); one that cannot be made ends the run.
//
// Non-goals: what is in an answer beside its codes (package tests and strangers' suites look at that).
package edge
