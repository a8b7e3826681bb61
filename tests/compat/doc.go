// Package compat shows that clients which were never told about varve work with it.
//
// Purpose: each test is what a user of that client would write. Those that need only Go run in `make test`; those whose
// client comes from elsewhere (kcat, from Debian) carry the build tag `external` and run in `.ci/run`. The folders hold
// what is larger: edge, wrong calls sent raw to both brokers; chains, group chains over restarts; suite, the table of
// clients.
//
// Invariants: a client is used as released, with its own defaults; nothing is skipped.
//
// Crash cases: none of its own (tests/cluster kills processes).
//
// Non-goals: speed (tests/bench).
package compat
