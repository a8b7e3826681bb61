// Command goclients runs one case of a Go client that varve itself does not use: sarama or kafka-go.
//
// Purpose: the cells of tests/compat/suite for these clients, in a module of its own so that varve's go.mod stays free of
// them. It is called with the client's and the case's name; COMPAT_BOOTSTRAP and COMPAT_NAME say where and under which
// names; exit code 0 means that the case passed.
//
// Invariants: each client is used through its public interface with its own defaults wherever a case allows it.
//
// Crash cases: none; a case that hangs is killed by the suite's time limit.
//
// Non-goals: franz-go, which varve is tested with everywhere else.
package main
