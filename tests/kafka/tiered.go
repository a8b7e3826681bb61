package kafka

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// InstallTier brings the file-based store that Apache Kafka has for its tests, and what 4.4 no longer has of what it needs.
func InstallTier(ctx context.Context) error {
	if err := Install(ctx); err != nil {
		return err
	}
	if err := Maven(ctx, "kafka-tiered", own("tiered.pom.xml")); err != nil {
		return err
	}
	source, classes := own("LogContext.java"), Cache("kafka-tiered", "classes")
	return Once("kafka-tiered-classes", []string{own("tiered.pom.xml"), source}, func() error {
		if err := os.MkdirAll(classes, 0o755); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "javac", "-nowarn", "-d", classes, "-cp", Jars(), source).CombinedOutput(); err != nil {
			return fmt.Errorf("javac: %w\n%s", err, out)
		}
		return nil
	})
}

// TierProps are the properties of a node whose topics may have a tier: LocalTieredStorage in a folder, brought by a class loader of
// its own, and KIP-405's metadata topic. InstallTier comes before the start.
func TierProps(folder string) []string {
	return []string{
		"remote.log.storage.system.enable=true",
		"remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
		"remote.log.storage.manager.class.path=" + Cache("kafka-tiered", "lib") + "/*:" + Cache("kafka-tiered", "classes") + "/",
		"rsm.config.dir=" + folder,
		"remote.log.metadata.manager.listener.name=PLAINTEXT",
		"rlmm.config.remote.log.metadata.topic.replication.factor=1",
		"rlmm.config.remote.log.metadata.topic.num.partitions=1",
	}
}
