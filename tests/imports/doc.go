// Package imports shows that a log directory written by Apache Kafka itself, imported with `varve tier import` and taken in
// by a cluster, reads equal from both; and so do the directories of a cluster's brokers, one of which was away at the end.
//
// Purpose: whoever comes with months of data moves without producing it again; offsets, batches, transactions and the gaps
// that compaction left must come through, and so must topic configs and the offsets of groups. Its test needs Java and the jars that tests/kafka installs from Maven, so it has
// the build tag kafka: `make import-peer`.
//
// Invariants: the expectation is what Apache Kafka's broker served, record by record, for both isolation levels; nothing
// is compared with what the test believes to have written.
//
// Crash cases: none of its own; imports that are cut off are tested in package tiering.
//
// Non-goals: formats older than Kafka 0.11.
package imports
