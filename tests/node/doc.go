// Package node runs the varve binary as its users do: a process with flags, a ready line, signals and an exit code.
//
// Purpose: tests, benchmarks and demonstrations that must see a real process (kill -9, exit codes, strace, memory
// limits) start it here, so that each of them says only what it is about.
//
// Invariants: a node's data folder belongs to the caller and outlives the process; a process is always waited for;
// whatever it wrote on stderr is shown when a test fails.
//
// Crash cases: Kill sends SIGKILL and waits; a process that ends by itself is reported by Start and by Exit.
//
// Non-goals: in-process brokers (package broker does that) and any knowledge of Kafka's protocol.
package node
