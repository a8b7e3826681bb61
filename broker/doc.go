// Package broker is the wiring of one node: it builds every part from the configuration, starts them in order, and
// takes them down in the reverse order.
//
// Purpose: the only place that knows all parts. It holds no logic of its own beyond order and exit codes.
//
// Start order: ports are bound (a taken one fails at once), the log directory is locked, the metastore opens and leads,
// the store is opened and probed, the broker registers, replicas load and apply the Image, the broker is unfenced,
// connections are accepted. Drain order: no new connections and requests in flight answered, uploads stopped, replicas
// stopped, logs flushed and the clean-shutdown marker written with this life's broker epoch, the metastore closed.
//
// Invariants: each part that runs does so on a goroutine that this package started, cancels and waits for; a part that
// ends by itself takes the node down with exit code 1; the clean-shutdown marker is written only after everything that
// could append has stopped.
//
// Crash cases: a start that fails half-way closes what it opened, in reverse; kill -9 at any moment leaves what the parts
// themselves recover from.
//
// Non-goals: flags and signals (cmd/varve), protocols, policies.
package broker
