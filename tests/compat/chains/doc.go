// Command chains runs franz-go's consumer group chains against a broker that is restarted in the middle of each.
//
// Purpose: `make compat-chains`. kgo's TestGroupETL produces records, and for each balancer passes them through three
// groups in a row, whose members come and go; it demands that no group sees a record twice or misses one. Here the broker
// is stopped while records are on their way, in the even rounds with SIGTERM and in the odd ones with SIGKILL, and started
// again on the same data.
//
// Invariants: the test is kgo's own, unmodified. Clients talk to a small proxy, whose port stays open while the broker is
// gone and which resets connections then: kgo retries a broken connection, but not one that is refused
// (isRetryableBrokerErr in kgo's errors.go); a member that meets one tells its poller "unable to join group session: unable
// to dial: connection refused", and the test takes any error of a poll for a failure, whatever the broker is. -direct
// leaves the proxy out: of eleven such rounds on varve, which was away for 0.2 to 2 seconds, one failed in that way, and
// the first on Apache Kafka (-kafka), which was away for 20. A round whose chain had ended before the restart, or in which
// no offset moved after it, is a failure.
//
// A round takes 10 to 40 seconds, most of which is a session timeout of kgo's test: members that left during a rebalance
// are still in the group's last record, and the broker that comes back waits for them, as Kafka does.
//
// Crash cases: all processes are ended with the run; a broker that does not end on SIGTERM with exit code 0 fails its round.
//
// Non-goals: the chains without restarts, which are a case of tests/compat/suite; transactions.
package main
