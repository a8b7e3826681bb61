package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// quickStartFile has the keys and values of the file that Kafka's quick start begins with (config/server.properties of
// Kafka 4; with controller.quorum.voters, config/kraft/server.properties of Kafka 3).
var quickStartFile = `process.roles=broker,controller
node.id=1
QUORUM
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=` + quickStartLogs + `
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
`

// quickStartClient starts a broker on Kafka's quick-start file, nothing added or changed, and lets kcat write and read.
func quickStartClient() Client {
	return Client{Name: "quick-start", Registry: registryDebian, Install: installKcat, Version: kcatVersion, Cases: []Case{
		{Name: "bootstrap-servers", Run: quickStart("controller.quorum.bootstrap.servers=localhost:9093")},
		{Name: "voters", Run: quickStart("controller.quorum.voters=1@localhost:9093")},
	}}
}

func quickStart(quorum string) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		file := filepath.Join(e.Dir, "server.properties")
		if err := os.WriteFile(file, []byte(strings.Replace(quickStartFile, "QUORUM", quorum, 1)), 0o600); err != nil {
			return err
		}
		cmd, err := beside(ctx, e, file, "sh", "-c", `kcat -b localhost:9092 -P -t quick -K: && kcat -b localhost:9092 -C -t quick -o beginning -e -q -f '%k:%s\n' &&
			kcat -b localhost:9092 -G quick -X auto.offset.reset=earliest -c 300 -q -f '%k:%s\n' quick`)
		if err != nil {
			return err
		}
		out, err := run(cmd, e, kcatLines(300))
		return errors.Join(err, want("read, then read by a group", out, kcatLines(300)+kcatLines(300)))
	}
}
