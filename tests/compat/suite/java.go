package main

import (
	"context"
	"os/exec"
	"slices"

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

// frameworkFlags open the parts of the JDK that Flink and Spark reach into.
var frameworkFlags = []string{"-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED",
	"--add-opens=java.base/java.lang.invoke=ALL-UNNAMED", "--add-opens=java.base/java.io=ALL-UNNAMED", "--add-opens=java.base/java.net=ALL-UNNAMED",
	"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
	"--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
	"--add-opens=java.base/sun.nio.cs=ALL-UNNAMED", "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}

// frameworks are what stands on the Java client; a program of ours is called with a case and a scratch folder.
func frameworks() []Client {
	client := func(name, folder, class string, slow bool, names ...string) Client {
		cl := Client{Name: name, Registry: registryMaven, Install: installFramework(folder), Slow: slow,
			Version: pinned("tests/compat/suite/java/"+folder+"/pom.xml", name+".version")}
		for _, n := range names {
			cl.Cases = append(cl.Cases, Case{Name: n, Limit: toolsTimeMax, Run: func(ctx context.Context, e *Env) error {
				args := append(slices.Clone(frameworkFlags), "-Dlog4j2.configurationFile="+kafka.Log4j(),
					"-cp", cache(folder, "classes")+":"+cache(folder, "lib")+"/*", class, n, e.Dir)
				_, err := run(exec.CommandContext(ctx, "java", args...), e, "")
				return err
			}})
		}
		return cl
	}
	return []Client{
		client("spring-kafka", "spring", "SpringProgram", false, "listener", "batch-ack", "dead-letter", "request-reply", "transaction"),
		client("flink", "flink", "FlinkProgram", true, "bounded", "checkpoints", "exactly-once"),
		client("spark", "spark", "SparkProgram", true, "batch", "streaming"),
	}
}

func javaClient(name, pom, folder, jars string, install func(context.Context) error) Client {
	return Client{Name: name, Registry: registryMaven, Install: install, Version: pinned(pom, "kafka.version"), Cases: program(func(ctx context.Context, c string) *exec.Cmd {
		return kafka.Tool(ctx, cache(folder, "classes")+":"+jars, "Compat", c)
	}, javaCases...)}
}
