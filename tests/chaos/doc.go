// Package chaos kills, erases and starves a node while clients use it, and looks for a record that is lost, doubled, moved
// or changed.
//
// Purpose: one varve process, as users run it, with tiny segments and nearly no local retention, so that at any moment
// something is being appended, sealed, uploaded, freed, deleted and read from both ends. Rounds of kill -9, SIGTERM, store
// outages, 503s, resets, latency, blackholes, lost checkpoints and erased partition folders come at random from a seed that
// is printed; -chaos.rounds and -chaos.seed run more of them, or the same ones again.
//
// Invariants that each round checks: the one idempotent producer of a partition was acknowledged at offsets without gap or
// repetition; every offset from log start to the end is read once, in order, with the record that was acknowledged there;
// log starts move by retention only; readers that run all the time see the same; what had settled before a folder was
// erased is still there. One run turns tiering off, on and read-only meanwhile, and changes retention. At the end: the objects that `varve tier ls` lists are those that the broker counts, segment by
// segment, without gap or overlap, and nothing is left of deleted topics. Last, when the node is dead, its
// bucket's own folder is held against the metadata that it left (node.CheckTier).
//
// Crash cases: those are the subject.
//
// Non-goals: loss of power (the packages' own tests cut it between any two writes), several nodes, performance.
package chaos
