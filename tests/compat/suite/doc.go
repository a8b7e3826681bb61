// Command suite runs clients that were never told about varve against it, and against Apache Kafka beside it.
//
// Purpose: `make compat` prints a table client x case, and fails on a cell that passes on Apache Kafka and fails here. Each
// client is installed from its registry into .cache/compat at a pinned version; our programs for it lie in the folders
// python, node, java and ../goclients. A cell is one process, or one sequence of a client's own tools, against one broker
// on the profile that strangers' suites expect: 127.0.0.1, topics made on first use with 4 partitions, internal topics on
// one broker, no initial rebalance delay, session timeouts from 1 s.
//
// Invariants: every cell has a time limit and its own topics and groups; a cell's program gets COMPAT_BOOTSTRAP and
// COMPAT_NAME and its exit code says everything; no cell is left out silently: the file waits names each one that may
// fail and what it waits for, and an entry whose cell passes is an error.
//
// Crash cases: brokers and client processes run in process groups of their own that are killed at the end, also when a
// time limit or an interrupt ends the run.
//
// Non-goals: edge calls sent raw (tests/compat), killing brokers under load (tests/cluster), speed (tests/bench).
package main
