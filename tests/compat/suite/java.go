package main

import (
	"context"
	"os/exec"

	"varve/tests/kafka"
)

// javaCases are what java/Compat.java knows and both lines of the client can do.
var javaCases = []string{
	"codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all", "idempotent", "big",
	"by-time", "from-middle", "transaction",
	"group-resume", "group-range", "group-sticky", "group-cooperative", "group-static", "group-crash", "group-metadata",
	"group-consumer",
	"admin-topics", "admin-topic-errors", "admin-configs", "admin-compacted", "admin-broker-configs", "admin-offsets", "admin-groups",
	"admin-records", "admin-logdirs", "admin-cluster", "admin-quotas",
}

func javaClient(name, folder, jars string, install func(context.Context) error) Client {
	return Client{Name: name, Install: install, Cases: program(func(ctx context.Context, c string) *exec.Cmd {
		return kafka.Tool(ctx, cache(folder, "classes")+":"+jars, "Compat", c)
	}, javaCases...)}
}
