// Package docs runs what the README and docs/ tell people to type.
//
// Purpose: a command in a document that does not work fails here.
//
// Invariants: every line of every fence marked `sh` is either run or, when it is a make target, is run by `.ci/run`; the
// commands run as written, on the ports they name, inside a network namespace of their own.
//
// Crash cases: a command that hangs is cut off by the test's deadline.
//
// Non-goals: prose.
package docs
