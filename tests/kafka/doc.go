// Package kafka installs Apache Kafka from Maven and runs it as KRaft nodes, one or several.
//
// Purpose: whatever compares varve with Apache Kafka (tests/compat/suite, tests/bench) gets its peer, and the tools that
// come with it, from here: one pinned version, one way to start it. A node whose topics have a tier in a folder is to be had on demand
// (InstallTier, TierProps): the store is the one that Apache Kafka's own tests have.
//
// Invariants: what is installed lies in .cache/compat and is installed again only when the files that pin it change; a
// node's data folder belongs to the caller and outlives the process; a process is always waited for.
//
// Crash cases: an install that was cut off is done again, since its stamp is written last; Kill sends SIGKILL to the
// process group and waits; a node that does not open its port is killed and named with its log.
//
// Non-goals: several controllers, and any opinion about configuration: properties and JVM options are the caller's.
package kafka
