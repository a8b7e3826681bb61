// Command varve is the one binary: the broker (varve server) and every tool around it.
//
// Purpose: a table of commands, each with its own flags, its own help with examples, and one function from arguments to an
// exit code, so that tests call a command as a shell would.
//
// Invariants: exit codes are 0 done, 1 failed, 2 wrong usage or configuration, 3 the object store refuses, 4 the data
// belongs to another cluster, node or a newer version. Results go to stdout, everything about their making to stderr, so
// that output can be piped; --format json is for programs. A misspelt command, flag or key is answered with the nearest that
// exists. Tools talk to a broker as any client does: over Kafka's protocol (franz-go) and the HTTP API; `tier ls` and `dump`
// need no broker and change nothing.
//
// Records by hand: produce and consume have formats of their own, told in their help; in JSON lines what consume writes
// produce reads back byte for byte. produce ends with 0 only when every record was acknowledged; a consumer of a group commits
// what it has printed, never more, and leaves the group when it is told to end. group reset changes nothing without --execute.
//
// Crash cases: the server's are those of package broker. A consume that is killed has committed at most five seconds less than it printed. `demo` works in a temporary folder that it removes; killed, it
// leaves that folder behind.
//
// Non-goals: schemas and transactions when producing by hand, an interactive shell.
package main
