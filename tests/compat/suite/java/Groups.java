import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/** Consumer groups of the classic protocol, and of the new one. */
final class Groups {
    private static final String PACKAGE = "org.apache.kafka.clients.consumer.";
    private static final int RECORDS = 4000;

    static void run(String name) throws Exception {
        Map<String, String> base = Map.of("group.id", Compat.NAME, "session.timeout.ms", "6000", "heartbeat.interval.ms", "300");
        switch (name) {
            case "group-resume" -> resume(base);
            case "group-range" -> two(Compat.with(base, "partition.assignment.strategy", PACKAGE + "RangeAssignor"));
            case "group-sticky" -> two(Compat.with(base, "partition.assignment.strategy", PACKAGE + "StickyAssignor"));
            case "group-cooperative" -> two(Compat.with(base, "partition.assignment.strategy", PACKAGE + "CooperativeStickyAssignor"));
            case "group-static" -> staticMember(base);
            case "group-crash" -> crash(base);
            case "group-metadata" -> metadata(base);
            case "group-consumer" -> two(Map.of("group.id", Compat.NAME, "group.protocol", "consumer"));
            default -> throw new IllegalArgumentException(name);
        }
    }

    private static void fill() throws Exception {
        try (var p = Compat.producer(Map.of())) {
            for (int i = 0; i < RECORDS; i++) {
                p.send(new ProducerRecord<>(Compat.NAME, i % 4, null, Compat.bytes("k" + i), Compat.bytes("v" + i)));
            }
            p.flush();
        }
    }

    /** Reads 1500, commits synchronously, closes; the next member of the group gets exactly the rest. */
    private static void resume(Map<String, String> base) throws Exception {
        fill();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        try (var c = Compat.consumer(Compat.with(base, "max.poll.records", "100"))) {
            c.subscribe(List.of(Compat.NAME));
            collect(c, seen, 1500);
            c.commitSync();
        }
        int before = seen.size();
        Set<String> rest = ConcurrentHashMap.newKeySet();
        try (var c = Compat.consumer(base)) {
            c.subscribe(List.of(Compat.NAME));
            collect(c, rest, RECORDS - before);
            c.commitSync();
            Compat.check(c.poll(Duration.ofMillis(300)).isEmpty(), "more records than were written");
        }
        for (String v : rest) {
            Compat.check(seen.add(v), v + " was read twice");
        }
        Compat.check(seen.size() == RECORDS, "read " + seen.size());
    }

    private static void collect(KafkaConsumer<byte[], byte[]> c, Set<String> into, int atLeast) {
        long until = System.currentTimeMillis() + 30_000;
        while (into.size() < atLeast && System.currentTimeMillis() < until) {
            for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(300))) {
                Compat.check(into.add(new String(r.value())), "read twice: " + new String(r.value()));
            }
        }
        Compat.check(into.size() >= atLeast, "read " + into.size() + " of " + atLeast);
    }

    /** A member in a thread of its own that commits after every poll until it is stopped. */
    private static final class Member implements Runnable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final Set<String> seen;
        final AtomicInteger assigned = new AtomicInteger();
        final AtomicReference<Throwable> failed = new AtomicReference<>();
        final AtomicBoolean stop = new AtomicBoolean();
        final Thread thread = new Thread(this);

        Member(Map<String, String> config, Set<String> seen) {
            this.seen = seen;
            consumer = Compat.consumer(Compat.with(config, "max.poll.records", "50"));
            thread.start();
        }

        @Override public void run() {
            try {
                consumer.subscribe(List.of(Compat.NAME), new ConsumerRebalanceListener() {
                    @Override public void onPartitionsRevoked(Collection<TopicPartition> p) { consumer.commitSync(); }
                    @Override public void onPartitionsAssigned(Collection<TopicPartition> p) { }
                });
                while (!stop.get()) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                    assigned.set(consumer.assignment().size());
                    records.forEach(r -> seen.add(new String(r.value())));
                    if (!records.isEmpty()) {
                        consumer.commitAsync();
                    }
                }
                consumer.commitSync();
            } catch (WakeupException ignored) {
                // asked to end
            } catch (Throwable t) {
                failed.set(t);
            } finally {
                consumer.close();
            }
        }

        void end() throws Exception {
            stop.set(true);
            thread.join(20_000);
            if (failed.get() != null) {
                throw new AssertionError("member failed", failed.get());
            }
        }
    }

    /** Two members share four partitions; when one leaves, the other takes over, and nothing is lost. */
    private static void two(Map<String, String> config) throws Exception {
        fill();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Member a = new Member(config, seen);
        Compat.await("the first member has all", () -> a.assigned.get() == 4);
        Member b = new Member(config, seen);
        Compat.await("they share", () -> a.assigned.get() == 2 && b.assigned.get() == 2);
        Compat.await("all is read", () -> seen.size() == RECORDS);
        a.end();
        Compat.await("the second member has all", () -> b.assigned.get() == 4);
        b.end();
        committed(RECORDS);
    }

    private static void committed(long want) {
        try (var c = Compat.consumer(Map.of("group.id", Compat.NAME))) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                all.add(new TopicPartition(Compat.NAME, i));
            }
            long sum = 0;
            for (Map.Entry<TopicPartition, OffsetAndMetadata> e : c.committed(Set.copyOf(all)).entrySet()) {
                sum += e.getValue() == null ? 0 : e.getValue().offset();
            }
            Compat.check(sum == want, "committed " + sum + ", want " + want);
        }
    }

    /** A static member that comes back within its session gets its partitions again without a rebalance of the other. */
    private static void staticMember(Map<String, String> base) throws Exception {
        fill();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Member a = new Member(Compat.with(base, "group.instance.id", "a", "session.timeout.ms", "15000"), seen);
        Member b = new Member(Compat.with(base, "group.instance.id", "b", "session.timeout.ms", "15000"), seen);
        Compat.await("they share", () -> a.assigned.get() == 2 && b.assigned.get() == 2);
        Compat.await("all is read", () -> seen.size() == RECORDS);
        a.end();
        Thread.sleep(1500);
        Compat.check(b.assigned.get() == 2, "a static member's absence moved partitions: " + b.assigned.get());
        Member again = new Member(Compat.with(base, "group.instance.id", "a", "session.timeout.ms", "15000"), seen);
        Compat.await("it is back", () -> again.assigned.get() == 2);
        Compat.check(b.assigned.get() == 2, "a static member's return moved partitions: " + b.assigned.get());
        again.end();
        b.end();
    }

    /** A member that stops polling and heart-beating is thrown out after its session; the other one takes over. */
    private static void crash(Map<String, String> base) throws Exception {
        fill();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Member a = new Member(Compat.with(base, "session.timeout.ms", "2000", "heartbeat.interval.ms", "200"), seen);
        var lost = Compat.consumer(Compat.with(base, "session.timeout.ms", "2000", "heartbeat.interval.ms", "200", "max.poll.interval.ms",
            "2000", "max.poll.records", "1"));
        lost.subscribe(List.of(Compat.NAME));
        long until = System.currentTimeMillis() + 20_000;
        while (lost.assignment().size() != 2 && System.currentTimeMillis() < until) {
            lost.poll(Duration.ofMillis(100));
        }
        Compat.check(lost.assignment().size() == 2, "the second member has " + lost.assignment());
        Compat.await("the first member has all again", () -> a.assigned.get() == 4);
        Compat.await("all is read", () -> seen.size() == RECORDS);
        a.end();
    }

    /** Commits with metadata and leader epoch come back as they were written. */
    private static void metadata(Map<String, String> base) throws Exception {
        fill();
        TopicPartition tp = new TopicPartition(Compat.NAME, 1);
        try (var c = Compat.consumer(base)) {
            c.assign(List.of(tp));
            c.commitSync(Map.of(tp, new OffsetAndMetadata(17, java.util.Optional.of(0), "note \u00e4")));
            OffsetAndMetadata got = c.committed(Set.of(tp)).get(tp);
            Compat.check(got.offset() == 17 && got.metadata().equals("note \u00e4"), "committed: " + got);
            c.poll(Duration.ofMillis(200));
            Compat.check(c.position(tp) >= 17, "position " + c.position(tp));
        }
    }
}
