// Package s3server starts real S3 servers for tests and benches: versitygw over a
// temporary folder, and moto as a second opinion, each as a process of its own on a
// free loopback port. Server.Kill and Server.Restart are what outages are made of;
// Proxy stands between a client and a server and makes the weather in between; a Fault
// strikes some requests only (faults.go). Objects and Differences look at a bucket from
// its folder, and hold it against the metastore's rows, without any code of varve's
// (listing.go).
//
// The versitygw binary is looked up in $VARVE_TOOLS_DIR, then in <repository>/.cache/bin
// (where `make tools` puts it); moto_server on the PATH. A missing one is an error with
// the command that helps, never a skipped test.
//
// Invariants: no process outlives the one that started it (on Linux not even when that
// one is killed); Restart comes back with the same address and data.
//
// Crash cases: Kill sends SIGKILL; what the server had not synced is still in the page
// cache, so this is a process crash, not a loss of power.
//
// Non-goals: TLS, more than one account, virtual-host addressing.
package s3server
