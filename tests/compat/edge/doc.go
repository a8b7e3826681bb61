// Package edge sends calls that are wrong, or only just right, to a broker and notes the error codes that come back.
//
// Purpose: one list for varve and for Apache Kafka. Run sends it to any broker address and returns one line for each
// call: its name, the request as text, the codes of the answer. The golden file of tests/compat (testdata/edge.golden) has
// what varve says and what Apache Kafka says; testdata/edge.differs gives the reason of each difference. `go test
// ./tests/compat` checks varve's column and the reasons, `make edge-peer` Kafka's column; both write theirs with -rewrite.
//
// Invariants: calls go out as raw frames of an exact version; the text of a request is taken from the request itself, with
// the ids that differ from run to run replaced by names; codes are sorted by what they are about, since brokers answer in
// any order. The broker is fresh, alone, has node id 1 and creates no topics by itself; topics are made at the start under
// fixed names and left behind. Both brokers have the same settings (Settings) and a tier. A group's case has a group of its
// own, named after the case, which is brought into its state by calls that must succeed. Only what does not depend on
// timing is asked: Kafka describes a group without a record as there or not, depending on what else its log took.
//
// Crash cases: a connection that the broker closes is a result ("closed"), and so is silence ("no answer"); a connection that
// cannot be made, and a state that a group does not reach, end the run.
//
// Non-goals: what is in an answer beside its codes (package tests and strangers' suites look at that).
package edge
