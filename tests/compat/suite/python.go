package main

import (
	"context"
	"os/exec"
)

// plainCases are what every client's program knows.
var plainCases = []string{"codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all",
	"idempotent", "big", "by-time", "from-middle", "group-resume"}

func pythonClient(name, dist, file string, more ...string) Client {
	names := append(append([]string{}, plainCases...), more...)
	return Client{Name: name, Registry: registryPyPI, Install: installPython, Version: pinned("tests/compat/suite/python/requirements.txt", dist), Cases: program(func(ctx context.Context, c string) *exec.Cmd {
		return exec.CommandContext(ctx, cache("python", "bin", "python"), "-B", suiteDir("python", file), c)
	}, names...)}
}

func pythonClients() []Client {
	admin := []string{"admin-topics", "admin-configs", "admin-groups", "admin-records", "admin-cluster"}
	return []Client{
		pythonClient("confluent-kafka-python", "confluent-kafka", "confluent_client.py",
			append(admin, "group-range", "group-cooperative", "group-consumer", "transaction")...),
		pythonClient("kafka-python", "kafka-python", "kafka_python_client.py", append(admin, "group-two")...),
		pythonClient("aiokafka", "aiokafka", "aiokafka_client.py", append(admin, "group-two", "transaction")...),
	}
}
