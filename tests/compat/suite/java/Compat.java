import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One case a run, with the Java client that is on the class path: producer and consumer here, more in Groups and Admins. */
public final class Compat {
    static final String BOOTSTRAP = System.getenv("COMPAT_BOOTSTRAP");
    static final String NAME = System.getenv("COMPAT_NAME");
    /** Within retention: an hour ago. */
    static final long START_MS = System.currentTimeMillis() - 3_600_000;

    public static void main(String[] args) throws Exception {
        String name = args[0];
        if (name.startsWith("codec-")) {
            roundTrip(samples(name.length()), Map.of("compression.type", name.substring(6)));
        } else if (name.startsWith("acks-")) {
            roundTrip(samples(7), Map.of("acks", name.substring(5), "enable.idempotence", "false"));
        } else if (name.startsWith("group-")) {
            Groups.run(name);
        } else if (name.startsWith("admin-")) {
            Admins.run(name);
        } else {
            plain(name);
        }
        System.out.println("done");
        System.exit(0);
    }

    private static void plain(String name) throws Exception {
        switch (name) {
            case "idempotent" -> roundTrip(samples(7), Map.of("enable.idempotence", "true", "linger.ms", "0", "batch.size", "2000"));
            case "big" -> {
                byte[] value = new byte[900 << 10];
                new Random(1).nextBytes(value);
                roundTrip(List.of(new ProducerRecord<>(NAME, 0, START_MS, bytes("big"), value)), Map.of());
            }
            case "by-time" -> byTime();
            case "from-middle" -> fromMiddle();
            case "transaction" -> Transactions.run();
            default -> throw new IllegalArgumentException(name);
        }
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    /** Records as users write them: keys, headers, timestamps, a tombstone, empty and null values. */
    static List<ProducerRecord<byte[], byte[]>> samples(int seed) {
        List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>();
        ProducerRecord<byte[], byte[]> first = new ProducerRecord<>(NAME, 0, START_MS, bytes("key"), bytes("value"));
        first.headers().add("trace", new byte[] {0, 1, 2}).add("trace", null).add("", new byte[0]);
        out.add(first);
        out.add(new ProducerRecord<>(NAME, 0, START_MS + 1000, bytes("gone"), (byte[]) null));
        out.add(new ProducerRecord<>(NAME, 0, START_MS + 2000, null, new byte[0]));
        out.add(new ProducerRecord<>(NAME, 0, START_MS + 3000, new byte[0], bytes("umlaut \u00e4\u00f6\u00fc")));
        for (int i = 0; i < 2000; i++) {
            out.add(new ProducerRecord<>(NAME, 0, START_MS + 4000 + i, bytes("k" + i % 17), bytes("xy".repeat(i % 50 + seed))));
        }
        return out;
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, String> more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", BOOTSTRAP);
        p.putAll(more);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", BOOTSTRAP);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.putAll(more);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void produce(List<ProducerRecord<byte[], byte[]>> records, Map<String, String> more) throws Exception {
        try (KafkaProducer<byte[], byte[]> p = producer(more)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> r : records) {
                sent.add(p.send(r));
            }
            p.flush();
            boolean blind = "0".equals(more.get("acks"));
            for (int i = 0; i < sent.size(); i++) {
                RecordMetadata md = sent.get(i).get();
                check(blind || md.offset() == i, "record " + i + " got offset " + md.offset());
            }
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> c, int count) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        long until = System.currentTimeMillis() + 40_000;
        while (got.size() < count && System.currentTimeMillis() < until) {
            c.poll(Duration.ofMillis(500)).forEach(got::add);
        }
        check(got.size() == count, "read " + got.size() + " records, want " + count);
        return got;
    }

    static void roundTrip(List<ProducerRecord<byte[], byte[]>> want, Map<String, String> more) throws Exception {
        produce(want, more);
        TopicPartition tp = new TopicPartition(NAME, 0);
        try (KafkaConsumer<byte[], byte[]> c = consumer(Map.of())) {
            c.assign(List.of(tp));
            c.seekToBeginning(List.of(tp));
            List<ConsumerRecord<byte[], byte[]>> got = read(c, want.size());
            for (int i = 0; i < got.size(); i++) {
                same(got.get(i), want.get(i), i);
            }
            check(c.endOffsets(List.of(tp)).get(tp) == want.size(), "end offset " + c.endOffsets(List.of(tp)));
            check(c.beginningOffsets(List.of(tp)).get(tp) == 0, "first offset " + c.beginningOffsets(List.of(tp)));
            check(c.partitionsFor(NAME).size() == 4, "partitions " + c.partitionsFor(NAME));
        }
    }

    private static void same(ConsumerRecord<byte[], byte[]> got, ProducerRecord<byte[], byte[]> want, int i) {
        check(got.offset() == i, "record " + i + " has offset " + got.offset());
        check(Arrays.equals(got.key(), want.key()), "key of " + i);
        check(Arrays.equals(got.value(), want.value()), "value of " + i);
        check(got.timestamp() == want.timestamp(), "timestamp of " + i + ": " + got.timestamp());
        Header[] a = got.headers().toArray();
        Header[] b = want.headers().toArray();
        check(a.length == b.length, "headers of " + i + ": " + a.length);
        for (int h = 0; h < a.length; h++) {
            check(a[h].key().equals(b[h].key()) && Arrays.equals(a[h].value(), b[h].value()), "header " + h + " of " + i);
        }
    }

    private static void byTime() throws Exception {
        List<ProducerRecord<byte[], byte[]>> want = samples(3);
        produce(want, Map.of("compression.type", "lz4"));
        TopicPartition tp = new TopicPartition(NAME, 0);
        try (KafkaConsumer<byte[], byte[]> c = consumer(Map.of())) {
            for (int i : new int[] {0, 1, 4, 1234, want.size() - 1}) {
                OffsetAndTimestamp at = c.offsetsForTimes(Map.of(tp, want.get(i).timestamp())).get(tp);
                check(at != null && at.offset() == i && at.timestamp() == want.get(i).timestamp(), "by time of " + i + ": " + at);
            }
            OffsetAndTimestamp before = c.offsetsForTimes(Map.of(tp, START_MS + 500)).get(tp);
            check(before != null && before.offset() == 1, "between records: " + before);
            OffsetAndTimestamp after = c.offsetsForTimes(Map.of(tp, START_MS + 1_000_000)).get(tp);
            check(after == null, "after the last record: " + after);
        }
    }

    private static void fromMiddle() throws Exception {
        List<ProducerRecord<byte[], byte[]>> want = samples(3);
        produce(want, Map.of());
        TopicPartition tp = new TopicPartition(NAME, 0);
        try (KafkaConsumer<byte[], byte[]> c = consumer(Map.of("max.partition.fetch.bytes", "1000", "fetch.max.bytes", "5000"))) {
            c.assign(List.of(tp));
            c.seek(tp, 1001);
            List<ConsumerRecord<byte[], byte[]>> got = read(c, want.size() - 1001);
            check(got.get(0).offset() == 1001, "first offset " + got.get(0).offset());
            same(got.get(500), want.get(1501), 1501);
        }
    }

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    /** Polls: a broker applies a change of metadata after it answered. */
    static void await(String what, Callable<Boolean> ok) throws Exception {
        long until = System.currentTimeMillis() + 30_000;
        while (!ok.call()) {
            check(System.currentTimeMillis() < until, "waited in vain: " + what);
            Thread.sleep(50);
        }
    }

    static Map<String, String> with(Map<String, String> base, String... more) {
        Map<String, String> out = new HashMap<>(base);
        for (int i = 0; i < more.length; i += 2) {
            out.put(more[i], more[i + 1]);
        }
        return Collections.unmodifiableMap(out);
    }
}
