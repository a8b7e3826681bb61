// Package localstack holds what localstack/ offers to somebody at a laptop: a node on a real S3 server, with and without
// Docker.
//
// Purpose: the script behind `make dev-s3` is run as people run it, and what it started is gone afterwards, in order. The
// compose file and the Dockerfile are parsed and held against what the code knows: settings, store URLs, packages.
//
// Invariants: only loopback and free ports; Go, bash and the versitygw of `make tools` are all it needs.
//
// Crash cases: a test that is killed leaves the script and its two children behind.
//
// Non-goals: pulling images or talking to a Docker daemon: the compose file is not run here.
package localstack
