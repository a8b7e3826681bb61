// Package event is how state changes are told: each package declares one small
// typed struct per change of its state and hands it to a [Sink]; what listens
// (log, metrics, status page, tests) is decided where the program is wired.
//
// Invariants: a nil Sink is valid and drops events; a Sink is called
// synchronously on the goroutine that made the change, possibly under that
// package's locks, so it must be quick and must not call back. Crash cases:
// none, nothing is stored. Non-goals: delivery guarantees, history, tracing.
package event
