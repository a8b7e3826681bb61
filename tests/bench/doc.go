// Command bench puts the same load to varve, to Apache Kafka and to the barest program that moves the same bytes,
// alternating A B A B in one run, and prints medians and ratios.
//
// Purpose: know what each byte and request costs. The rows are one table in rows.go. A raw socket client drives every side:
// it replays batches that were encoded once and drops what it reads inside the kernel, so that it costs little; clients
// that people use (Kafka's own perf tools, kgo) have rows beside it. Files: server.properties is what both brokers are started
// with; docs/performance.md and docs/img are written from the JSON of a run.
//
// Invariants: every side is a process of its own, and its CPU is the kernel's account of that process; a ratio is the median
// of the rounds' own ratios, each between neighbours in time; produce rounds append to new files on a quiet disk; every
// reply's error code and length is checked; a figure is never printed without the number of rounds behind it. Beside the
// stall row a meter, a process of its own too, tells the machine's stalls from the broker's.
//
// Crash cases: a side that dies, answers an error or answers less than it must costs the row: the run goes on with the next
// one on fresh brokers, and ends with exit code 1; nothing is retried. Brokers are killed and their data is removed at the
// end, also after an interrupt; at most about 25 GB are on disk at once (the recovery row).
//
// Non-goals: correctness of what is read beyond its length and error code, and load from more than one machine.
package main
