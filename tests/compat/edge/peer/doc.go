// Command peer asks Apache Kafka the list of edge calls and compares its answers with the golden file.
//
// Purpose: `make edge-peer` shows that Kafka's column of testdata/edge.golden is what Kafka says, and that every
// difference to varve has its reason in testdata/edge.differs. -rewrite writes the column anew.
//
// Invariants: the broker is fresh, alone and has the settings that varve has in TestEdgeCalls.
//
// Crash cases: the broker is killed at the end, also when the run is interrupted.
//
// Non-goals: varve's column (go test ./tests/compat -run EdgeCalls -rewrite).
package main
