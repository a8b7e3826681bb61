// Command chains runs franz-go's consumer group chains against a broker that is restarted in the middle of each.
//
// Purpose: `make compat-chains`. kgo's TestGroupETL produces records, and for each balancer passes them through three
// groups in a row, whose members come and go; it demands that no group sees a record twice or misses one. Here the broker
// is stopped while records are on their way, in the even rounds with SIGTERM and in the odd ones with SIGKILL, and started
// again on the same data.
//
// Invariants: the test is kgo's own, unmodified. Clients talk to a small proxy, whose port stays open while the broker is
// gone and which resets connections then: kgo retries a broken connection, but gives up requests to a coordinator that
// refuses one (isDialNonTimeoutErr in kgo's errors.go), and the test then counts a failed commit against the broker,
// whichever it is. -direct shows that, with -kafka on Apache Kafka too. A round whose chain had ended before the restart,
// or in which no offset moved after it, is a failure.
//
// Crash cases: all processes are ended with the run; a broker that does not end on SIGTERM with exit code 0 fails its round.
//
// Non-goals: the chains without restarts, which are a case of tests/compat/suite; transactions.
package main
