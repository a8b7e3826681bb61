// Package cluster tests varve as a whole: the real binary, real clients, real stores, processes that are killed.
//
// Purpose: what the README promises is seen here from outside: records go in by a Kafka client, settle into each kind
// of store, leave the local disk, and come back byte for byte, before and after crashes; bad input of any kind ends
// in a clear error and loses nothing.
//
// Invariants: only loopback is used; each test has its own folders, ports and store; loops are bounded.
//
// Crash cases: kill -9 at arbitrary moments, partition folders deleted, full disk, stores that refuse or are gone.
//
// Non-goals: protocol details (tests/compat and the packages' own tests), timing (tests/bench).
package cluster
