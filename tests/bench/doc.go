// Command bench measures varve beside the barest program that moves the same bytes, alternating A B A B in one run,
// and prints medians and ratios.
//
// Purpose: know what each byte costs. Hot reads stand beside a loop of sendfile on the same file sizes; produce beside
// a loop of receive, CRC32C and pwrite. One raw socket client serves both sides, so that the client cancels out.
//
// Invariants: both sides run as processes of their own; their CPU is the kernel's account of them; a figure is never
// printed without the number of runs behind it; absolute figures are this machine's, ratios travel.
//
// Crash cases: a side that dies or answers an error ends the run with exit code 1; nothing is retried.
//
// Non-goals: verdicts (the reader compares) and correctness of what is read beyond its length and error code.
package main
