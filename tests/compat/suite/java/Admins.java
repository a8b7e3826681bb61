import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The admin client. */
final class Admins {
    private static final String NAME = Compat.NAME;

    static void run(String name) throws Exception {
        try (Admin a = Admin.create(Map.of("bootstrap.servers", Compat.BOOTSTRAP))) {
            switch (name) {
                case "admin-topics" -> topics(a);
                case "admin-topic-errors" -> topicErrors(a);
                case "admin-configs" -> configs(a);
                case "admin-compacted" -> compacted(a);
                case "admin-broker-configs" -> brokerConfigs(a);
                case "admin-offsets" -> offsets(a);
                case "admin-groups" -> groups(a);
                case "admin-records" -> records(a);
                case "admin-logdirs" -> logDirs(a);
                case "admin-cluster" -> cluster(a);
                case "admin-quotas" -> Compat.check(a.describeClientQuotas(
                    org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get() != null, "quotas");
                default -> throw new IllegalArgumentException(name);
            }
        }
    }

    private static void refused(Class<?> want, java.util.concurrent.Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (ExecutionException e) {
            Compat.check(want.isInstance(e.getCause()), "want " + want.getSimpleName() + ", got " + e.getCause());
            return;
        }
        throw new AssertionError("not refused: " + want.getSimpleName());
    }

    private static TopicDescription describe(Admin a) throws Exception {
        return a.describeTopics(List.of(NAME)).allTopicNames().get().get(NAME);
    }

    private static void topics(Admin a) throws Exception {
        var made = a.createTopics(List.of(new NewTopic(NAME, 3, (short) 1).configs(Map.of("retention.ms", "3600000"))));
        made.all().get();
        Compat.check(made.numPartitions(NAME).get() == 3, "partitions in the answer");
        Compat.check(made.config(NAME).get().get("retention.ms").value().equals("3600000"), "config in the answer");
        refused(TopicExistsException.class, () -> a.createTopics(List.of(new NewTopic(NAME, 3, (short) 1))).all().get());
        Compat.await("listed", () -> a.listTopics().names().get().contains(NAME));
        TopicDescription d = describe(a);
        Compat.check(d.partitions().size() == 3 && !d.isInternal(), "described: " + d);
        Uuid id = made.topicId(NAME).get();
        Compat.check(d.topicId().equals(id), "topic id");
        Compat.check(a.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name().equals(NAME), "by id");
        a.createPartitions(Map.of(NAME, NewPartitions.increaseTo(5))).all().get();
        Compat.await("createPartitions", () -> describe(a).partitions().size() == 5);
        a.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        Compat.await("deleted", () -> !a.listTopics().names().get().contains(NAME));
        a.createTopics(List.of(new NewTopic(NAME, Optional.empty(), Optional.empty()))).all().get();
        Compat.await("listed again", () -> a.listTopics().names().get().contains(NAME));
        Compat.check(describe(a).partitions().size() == 4, "default number of partitions");
        Compat.check(!describe(a).topicId().equals(id), "the id of a topic made again");
        a.deleteTopics(List.of(NAME)).all().get();
    }

    private static void topicErrors(Admin a) throws Exception {
        refused(InvalidReplicationFactorException.class, () -> a.createTopics(List.of(new NewTopic(NAME, 1, (short) 3))).all().get());
        refused(InvalidTopicException.class, () -> a.createTopics(List.of(new NewTopic("no/slash", 1, (short) 1))).all().get());
        refused(InvalidConfigurationException.class, () -> a.createTopics(List.of(
            new NewTopic(NAME, 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());
        refused(InvalidConfigurationException.class, () -> a.createTopics(List.of(
            new NewTopic(NAME, 1, (short) 1).configs(Map.of("no.such.key", "1")))).all().get());
        refused(UnknownTopicOrPartitionException.class, () -> a.deleteTopics(List.of(NAME)).all().get());
        refused(UnknownTopicOrPartitionException.class, () -> a.describeTopics(List.of(NAME)).allTopicNames().get());
        a.createTopics(List.of(new NewTopic(NAME, 1, (short) 1)), new org.apache.kafka.clients.admin.CreateTopicsOptions().validateOnly(true)).all().get();
        Compat.check(!a.listTopics().names().get().contains(NAME), "validateOnly made a topic");
    }

    private static Config configOf(Admin a, ConfigResource r) throws Exception {
        return a.describeConfigs(List.of(r)).all().get().get(r);
    }

    private static void alter(Admin a, ConfigResource r, AlterConfigOp.OpType op, String key, String value) throws Exception {
        Collection<AlterConfigOp> ops = List.of(new AlterConfigOp(new ConfigEntry(key, value), op));
        a.incrementalAlterConfigs(Map.of(r, ops)).all().get();
    }

    private static void configs(Admin a) throws Exception {
        // A tiered topic cannot be compacted, on either broker; varve tiers by default.
        a.createTopics(List.of(new NewTopic(NAME, 1, (short) 1).configs(Map.of("remote.storage.enable", "false")))).all().get();
        Compat.await("listed", () -> a.listTopics().names().get().contains(NAME));
        ConfigResource r = new ConfigResource(ConfigResource.Type.TOPIC, NAME);
        ConfigEntry e = configOf(a, r).get("retention.ms");
        Compat.check(e.isDefault() && e.value().equals("604800000"), "default: " + e);
        alter(a, r, AlterConfigOp.OpType.SET, "retention.ms", "1234567");
        reads(a, r, "retention.ms", "1234567", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(a, r, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        reads(a, r, "cleanup.policy", "delete,compact", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(a, r, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "compact");
        reads(a, r, "cleanup.policy", "delete", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(a, r, AlterConfigOp.OpType.DELETE, "retention.ms", "");
        reads(a, r, "retention.ms", "604800000", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        refused(InvalidConfigurationException.class, () -> { alter(a, r, AlterConfigOp.OpType.SET, "retention.ms", "soon"); return null; });
    }

    private static void reads(Admin a, ConfigResource r, String key, String value, ConfigEntry.ConfigSource source) throws Exception {
        ConfigEntry[] last = new ConfigEntry[1];
        try {
            Compat.await(key, () -> {
                last[0] = configOf(a, r).get(key);
                return last[0].value().equals(value) && last[0].source() == source;
            });
        } catch (AssertionError e) {
            throw new AssertionError("want " + value + " from " + source + ", have " + last[0], e);
        }
    }

    /** What Connect, Streams and schema registries make at their first start. */
    private static void compacted(Admin a) throws Exception {
        a.createTopics(List.of(new NewTopic(NAME, 1, (short) 1).configs(Map.of("cleanup.policy", "compact", "min.insync.replicas", "1")))).all().get();
        Compat.await("listed", () -> a.listTopics().names().get().contains(NAME));
        ConfigResource r = new ConfigResource(ConfigResource.Type.TOPIC, NAME);
        reads(a, r, "cleanup.policy", "compact", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        try (var p = Compat.producer(Map.of())) {
            p.send(new ProducerRecord<>(NAME, Compat.bytes("k"), Compat.bytes("v"))).get();
            refused(InvalidRecordException.class, () -> p.send(new ProducerRecord<>(NAME, null, Compat.bytes("no key"))).get());
        }
    }

    private static void brokerConfigs(Admin a) throws Exception {
        String id = a.describeCluster().nodes().get().iterator().next().idString();
        ConfigResource r = new ConfigResource(ConfigResource.Type.BROKER, id);
        Compat.check(configOf(a, r).get("num.partitions").value().equals("4"), "static: " + configOf(a, r).get("num.partitions"));
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        String key = "log.cleaner.delete.retention.ms";
        alter(a, all, AlterConfigOp.OpType.SET, key, "86400001");
        reads(a, r, key, "86400001", ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);
        alter(a, r, AlterConfigOp.OpType.SET, key, "86400002");
        reads(a, r, key, "86400002", ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG);
        alter(a, r, AlterConfigOp.OpType.DELETE, key, "");
        alter(a, all, AlterConfigOp.OpType.DELETE, key, "");
        reads(a, r, key, "86400000", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
    }

    private static void offsets(Admin a) throws Exception {
        Compat.produce(Compat.samples(5), Map.of());
        TopicPartition tp = new TopicPartition(NAME, 0);
        Compat.check(a.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset() == 0, "earliest");
        Compat.check(a.listOffsets(Map.of(tp, OffsetSpec.latest())).all().get().get(tp).offset() == 2004, "latest");
        var max = a.listOffsets(Map.of(tp, OffsetSpec.maxTimestamp())).all().get().get(tp);
        Compat.check(max.offset() == 2003 && max.timestamp() == Compat.START_MS + 4000 + 1999, "max timestamp: " + max);
        Compat.check(a.listOffsets(Map.of(tp, OffsetSpec.forTimestamp(Compat.START_MS + 4001))).all().get().get(tp).offset() == 5, "by time");
    }

    private static void groups(Admin a) throws Exception {
        Compat.produce(Compat.samples(5), Map.of());
        TopicPartition tp = new TopicPartition(NAME, 0);
        try (var c = Compat.consumer(Map.of("group.id", NAME, "client.id", "who"))) {
            c.subscribe(List.of(NAME));
            Compat.read(c, 2004);
            c.commitSync();
            ConsumerGroupDescription d = a.describeConsumerGroups(List.of(NAME)).all().get().get(NAME);
            Compat.check(d.members().size() == 1 && d.state().toString().equals("Stable"), "described: " + d);
            var m = d.members().iterator().next();
            Compat.check(m.clientId().equals("who") && m.assignment().topicPartitions().size() == 4, "member: " + m);
            Set<String> names = a.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).collect(Collectors.toSet());
            Compat.check(names.contains(NAME), "listed: " + names);
        }
        Compat.check(a.listConsumerGroupOffsets(NAME).partitionsToOffsetAndMetadata().get().get(tp).offset() == 2004, "offsets");
        a.alterConsumerGroupOffsets(NAME, Map.of(tp, new OffsetAndMetadata(3, "moved"))).all().get();
        Compat.check(a.listConsumerGroupOffsets(NAME).partitionsToOffsetAndMetadata().get().get(tp).offset() == 3, "altered");
        a.deleteConsumerGroupOffsets(NAME, Set.of(tp)).all().get();
        Compat.check(a.listConsumerGroupOffsets(NAME).partitionsToOffsetAndMetadata().get().get(tp) == null, "offset deleted");
        a.deleteConsumerGroups(List.of(NAME)).all().get();
        refused(GroupIdNotFoundException.class, () -> a.deleteConsumerGroups(List.of(NAME)).all().get());
    }

    private static void records(Admin a) throws Exception {
        Compat.produce(Compat.samples(5), Map.of());
        TopicPartition tp = new TopicPartition(NAME, 0);
        var low = a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(100))).lowWatermarks().get(tp).get();
        Compat.check(low.lowWatermark() == 100, "low watermark " + low.lowWatermark());
        Compat.check(a.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset() == 100, "earliest");
        a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(-1))).all().get();
        Compat.check(a.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset() == 2004, "all deleted");
    }

    private static void logDirs(Admin a) throws Exception {
        Compat.produce(Compat.samples(5), Map.of());
        int id = a.describeCluster().nodes().get().iterator().next().id();
        var dirs = a.describeLogDirs(List.of(id)).allDescriptions().get().get(id);
        Compat.check(dirs.size() == 1, "directories: " + dirs.keySet());
        var d = dirs.values().iterator().next();
        Compat.check(d.error() == null && d.totalBytes().orElse(0) > 0, "directory: " + d);
        Compat.check(d.replicaInfos().get(new TopicPartition(NAME, 0)).size() > 1000, "size: " + d.replicaInfos());
    }

    private static void cluster(Admin a) throws Exception {
        var c = a.describeCluster();
        Compat.check(c.nodes().get().size() == 1 && !c.clusterId().get().isEmpty(), "cluster");
        Compat.check(c.controller().get() != null, "controller");
        Compat.check(a.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"), "features");
    }
}
