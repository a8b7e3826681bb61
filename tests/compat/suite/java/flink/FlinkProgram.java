import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A job on Flink's local mini cluster that reads one topic and writes another. */
public final class FlinkProgram {
    static final String BOOTSTRAP = System.getenv("COMPAT_BOOTSTRAP");
    static final String NAME = System.getenv("COMPAT_NAME");
    static final String OUT = NAME + "-out";
    static final int RECORDS = 20_000;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "bounded" -> bounded();
            case "checkpoints" -> running(DeliveryGuarantee.AT_LEAST_ONCE);
            case "exactly-once" -> running(DeliveryGuarantee.EXACTLY_ONCE);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    private static void fill() throws Exception {
        try (var p = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", BOOTSTRAP), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < RECORDS; i++) {
                p.send(new ProducerRecord<>(NAME, i % 4, null, Integer.toString(i)));
            }
            p.flush();
        }
    }

    private static KafkaSource<String> source(boolean bounded) {
        var b = KafkaSource.<String>builder().setBootstrapServers(BOOTSTRAP).setTopics(NAME).setGroupId(NAME)
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setProperty("partition.discovery.interval.ms", "1000").setValueOnlyDeserializer(new SimpleStringSchema());
        return (bounded ? b.setBounded(OffsetsInitializer.latest()) : b).build();
    }

    private static KafkaSink<String> sink(DeliveryGuarantee guarantee) {
        Properties p = new Properties();
        p.put("transaction.timeout.ms", "60000");
        p.put("max.block.ms", "20000");
        return KafkaSink.<String>builder().setBootstrapServers(BOOTSTRAP).setDeliveryGuarantee(guarantee).setTransactionalIdPrefix(NAME)
            .setKafkaProducerConfig(p).setRecordSerializer(KafkaRecordSerializationSchema.builder().setTopic(OUT)
                .setValueSerializationSchema(new SimpleStringSchema()).build()).build();
    }

    private static StreamExecutionEnvironment environment(int checkpointMs) {
        Configuration c = new Configuration();
        c.setString("restart-strategy.type", "fixed-delay");
        c.setString("restart-strategy.fixed-delay.attempts", "2");
        c.setString("restart-strategy.fixed-delay.delay", "200 ms");
        var env = StreamExecutionEnvironment.createLocalEnvironment(2, c);
        if (checkpointMs > 0) {
            env.enableCheckpointing(checkpointMs);
        }
        return env;
    }

    /** A batch: everything there is, once, and nothing else. */
    private static void bounded() throws Exception {
        fill();
        var env = environment(0);
        env.fromSource(source(true), WatermarkStrategy.noWatermarks(), "in").map(new Times(3, false)).sinkTo(sink(DeliveryGuarantee.AT_LEAST_ONCE));
        env.execute();
        Map<String, Integer> got = read(false, RECORDS);
        check(got.size() == RECORDS && got.values().stream().allMatch(n -> n == 1), got.size() + " values, want each once");
    }

    /** A stream: the job fails once, goes on from its last checkpoint, and commits offsets with each one. */
    private static void running(DeliveryGuarantee guarantee) throws Exception {
        fill();
        var env = environment(500);
        env.fromSource(source(false), WatermarkStrategy.noWatermarks(), "in").map(new Times(3, true)).sinkTo(sink(guarantee));
        JobClient job = env.executeAsync();
        Map<String, Integer> got = read(guarantee == DeliveryGuarantee.EXACTLY_ONCE, RECORDS);
        check(Times.FAILED.get(), "the job did not fail");
        check(got.size() == RECORDS, got.size() + " values");
        check(guarantee != DeliveryGuarantee.EXACTLY_ONCE || got.values().stream().allMatch(n -> n == 1), "a value came twice");
        committed();
        job.cancel().get(30, TimeUnit.SECONDS);
    }

    private static void committed() throws Exception {
        try (Admin a = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP))) {
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            long sum = 0;
            while (sum != RECORDS) {
                check(System.nanoTime() < until, "committed " + sum);
                Thread.sleep(100);
                sum = a.listConsumerGroupOffsets(NAME).partitionsToOffsetAndMetadata().get().values().stream().mapToLong(o -> o.offset()).sum();
            }
        }
    }

    /** Reads what the job wrote until there are so many different values, then for three more seconds. */
    private static Map<String, Integer> read(boolean committed, int different) {
        Map<String, Integer> got = new HashMap<>();
        try (var c = new KafkaConsumer<>(Map.<String, Object>of("bootstrap.servers", BOOTSTRAP, "group.id", OUT, "auto.offset.reset", "earliest",
                "isolation.level", committed ? "read_committed" : "read_uncommitted", "metadata.max.age.ms", "1000"), new StringDeserializer(), new StringDeserializer())) {
            c.subscribe(List.of(OUT));
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
            while (System.nanoTime() < until && got.size() < different) {
                c.poll(Duration.ofMillis(200)).forEach(r -> got.merge(r.value(), 1, Integer::sum));
            }
            for (int i = 0; i < 15; i++) {
                c.poll(Duration.ofMillis(200)).forEach(r -> got.merge(r.value(), 1, Integer::sum));
            }
        }
        List<String> missing = new ArrayList<>();
        for (int i = 0; i < RECORDS && missing.size() < 5; i++) {
            if (!got.containsKey(Integer.toString(3 * i))) {
                missing.add(Integer.toString(3 * i));
            }
        }
        check(missing.isEmpty(), got.size() + " values, without " + missing);
        return got;
    }

    /** Multiplies, slowly where it is to fail once in the middle. */
    static final class Times implements MapFunction<String, String> {
        static final AtomicBoolean FAILED = new AtomicBoolean();
        static final AtomicInteger SEEN = new AtomicInteger();
        private final int factor;
        private final boolean fail;

        Times(int factor, boolean fail) {
            this.factor = factor;
            this.fail = fail;
        }

        @Override
        public String map(String v) throws Exception {
            int n = SEEN.incrementAndGet();
            if (fail && n % 10 == 0) {
                Thread.sleep(1);
            }
            if (fail && n > RECORDS / 2 && FAILED.compareAndSet(false, true)) {
                throw new IllegalStateException("the failure in the middle");
            }
            return Integer.toString(factor * Integer.parseInt(v));
        }
    }
}
