import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ContainerProperties.AckMode;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.Acknowledgment;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.util.backoff.FixedBackOff;

/** What Spring programs do: topics as beans, a template, annotated listeners, batches, retries, replies, transactions. */
public final class SpringProgram {
    static final String BOOTSTRAP = System.getenv("COMPAT_BOOTSTRAP");
    static final String NAME = System.getenv("COMPAT_NAME");
    static final int RECORDS = 2000;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "listener" -> listener();
            case "batch-ack" -> batches();
            case "dead-letter" -> deadLetter();
            case "request-reply" -> requestReply();
            case "transaction" -> transaction();
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    static void await(String what, Callable<Boolean> ok) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!ok.call()) {
            check(System.nanoTime() < until, "waited in vain: " + what);
            Thread.sleep(50);
        }
    }

    /** The beans that every case has. */
    @Configuration
    @EnableKafka
    static class Base {
        @Bean
        KafkaAdmin admin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", BOOTSTRAP));
        }

        @Bean
        NewTopic topic() {
            return TopicBuilder.name(NAME).partitions(4).replicas(1).config("retention.ms", "3600000").build();
        }

        @Bean
        NewTopic second() {
            return TopicBuilder.name(NAME + "-second").partitions(4).replicas(1).build();
        }

        @Bean
        ProducerFactory<String, String> producers() {
            return new DefaultKafkaProducerFactory<>(Map.of("bootstrap.servers", BOOTSTRAP), new StringSerializer(), new StringSerializer());
        }

        @Bean
        KafkaTemplate<String, String> template(ProducerFactory<String, String> producers) {
            return new KafkaTemplate<>(producers);
        }

        @Bean
        ConsumerFactory<String, String> consumers() {
            return new DefaultKafkaConsumerFactory<>(Map.of("bootstrap.servers", BOOTSTRAP, "group.id", NAME, "auto.offset.reset", "earliest",
                "isolation.level", "read_committed"), new StringDeserializer(), new StringDeserializer());
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(ConsumerFactory<String, String> consumers) {
            var f = new ConcurrentKafkaListenerContainerFactory<String, String>();
            f.setConsumerFactory(consumers);
            f.setConcurrency(2);
            return f;
        }
    }

    static void send(KafkaTemplate<String, String> t, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            var r = new ProducerRecord<>(NAME, i % 4, "k" + i, "v" + i);
            r.headers().add("n", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
            t.send(r);
        }
        t.flush();
    }

    @Configuration
    static class Listening extends Base {
        final Set<String> seen = ConcurrentHashMap.newKeySet();
        final Set<String> wrong = ConcurrentHashMap.newKeySet();

        @KafkaListener(id = "one", idIsGroup = false, topics = "#{systemEnvironment['COMPAT_NAME']}")
        void listen(ConsumerRecord<String, String> r) {
            String n = new String(r.headers().lastHeader("n").value(), StandardCharsets.UTF_8);
            if (!r.key().equals("k" + n) || !r.value().equals("v" + n)) {
                wrong.add(r.toString());
            }
            seen.add(r.value());
        }
    }

    private static void listener() throws Exception {
        try (var c = new AnnotationConfigApplicationContext(Listening.class)) {
            var admin = c.getBean(KafkaAdmin.class);
            check(admin.describeTopics(NAME).get(NAME).partitions().size() == 4, "partitions of the bean's topic");
            var l = c.getBean(Listening.class);
            send(c.getBean(KafkaTemplate.class), RECORDS);
            await("all is heard", () -> l.seen.size() == RECORDS);
            check(l.wrong.isEmpty(), "wrong records: " + l.wrong);
            var container = c.getBean(KafkaListenerEndpointRegistry.class).getListenerContainer("one");
            container.stop();
            l.seen.clear(); // before there is anything to hear: the container may be back before the send has returned
            container.start();
            c.getBean(KafkaTemplate.class).send(new ProducerRecord<>(NAME, 0, "k0", "v0", List.of(
                new org.apache.kafka.common.header.internals.RecordHeader("n", "0".getBytes(StandardCharsets.UTF_8))))).get(20, TimeUnit.SECONDS);
            await("the one record after the restart", () -> l.seen.contains("v0"));
            check(l.seen.size() == 1, "heard again: " + l.seen.size());
        }
    }

    @Configuration
    static class Batching extends Base {
        final Set<String> seen = ConcurrentHashMap.newKeySet();

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> batchFactory(ConsumerFactory<String, String> consumers) {
            var f = kafkaListenerContainerFactory(consumers);
            f.setBatchListener(true);
            f.getContainerProperties().setAckMode(AckMode.MANUAL_IMMEDIATE);
            f.getContainerProperties().setSyncCommits(true);
            return f;
        }

        @KafkaListener(topics = "#{systemEnvironment['COMPAT_NAME']}", containerFactory = "batchFactory")
        void listen(List<ConsumerRecord<String, String>> batch, Acknowledgment ack) {
            batch.forEach(r -> seen.add(r.value()));
            ack.acknowledge();
        }
    }

    private static void batches() throws Exception {
        try (var c = new AnnotationConfigApplicationContext(Batching.class)) {
            send(c.getBean(KafkaTemplate.class), RECORDS);
            await("all is heard", () -> c.getBean(Batching.class).seen.size() == RECORDS);
            var admin = c.getBean(KafkaAdmin.class);
            try (var a = org.apache.kafka.clients.admin.Admin.create(admin.getConfigurationProperties())) {
                await("all is committed", () -> a.listConsumerGroupOffsets(NAME).partitionsToOffsetAndMetadata().get().values().stream()
                    .mapToLong(o -> o.offset()).sum() == RECORDS);
            }
        }
    }

    @Configuration
    static class Failing extends Base {
        final Set<String> dead = ConcurrentHashMap.newKeySet();
        final Set<String> seen = ConcurrentHashMap.newKeySet();

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> failing(ConsumerFactory<String, String> consumers, KafkaTemplate<String, String> t) {
            var f = kafkaListenerContainerFactory(consumers);
            f.setCommonErrorHandler(new DefaultErrorHandler(new DeadLetterPublishingRecoverer(t, (r, e) ->
                new org.apache.kafka.common.TopicPartition(NAME + "-second", r.partition())), new FixedBackOff(20, 2)));
            return f;
        }

        @KafkaListener(topics = "#{systemEnvironment['COMPAT_NAME']}", containerFactory = "failing")
        void listen(ConsumerRecord<String, String> r) {
            if (r.value().endsWith("13")) {
                throw new IllegalStateException("unlucky");
            }
            seen.add(r.value());
        }

        @KafkaListener(topics = "#{systemEnvironment['COMPAT_NAME'] + '-second'}", groupId = "#{systemEnvironment['COMPAT_NAME'] + '-second'}")
        void buried(ConsumerRecord<String, String> r) {
            check(new String(r.headers().lastHeader("kafka_dlt-original-topic").value(), StandardCharsets.UTF_8).equals(NAME), "origin");
            dead.add(r.value());
        }
    }

    private static void deadLetter() throws Exception {
        try (var c = new AnnotationConfigApplicationContext(Failing.class)) {
            send(c.getBean(KafkaTemplate.class), 400);
            var f = c.getBean(Failing.class);
            await("four records are buried", () -> f.dead.equals(Set.of("v13", "v113", "v213", "v313")));
            await("the others are heard", () -> f.seen.size() == 396);
        }
    }

    @Configuration
    static class Replying extends Base {
        @Bean
        ReplyingKafkaTemplate<String, String, String> replying(ProducerFactory<String, String> producers,
                ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory) {
            var replies = kafkaListenerContainerFactory.createContainer(NAME + "-second");
            replies.getContainerProperties().setGroupId(NAME + "-replies");
            kafkaListenerContainerFactory.setReplyTemplate(new KafkaTemplate<>(producers));
            return new ReplyingKafkaTemplate<>(producers, replies);
        }

        @KafkaListener(topics = "#{systemEnvironment['COMPAT_NAME']}")
        @SendTo
        String answer(String question) {
            return question.toUpperCase();
        }
    }

    private static void requestReply() throws Exception {
        try (var c = new AnnotationConfigApplicationContext(Replying.class)) {
            @SuppressWarnings("unchecked")
            ReplyingKafkaTemplate<String, String, String> t = c.getBean("replying", ReplyingKafkaTemplate.class);
            t.setDefaultReplyTimeout(Duration.ofSeconds(30));
            check(t.waitForAssignment(Duration.ofSeconds(30)), "no partitions for replies");
            for (int i = 0; i < 20; i++) {
                var answer = t.sendAndReceive(new ProducerRecord<>(NAME, "k", "question " + i)).get(40, TimeUnit.SECONDS);
                check(answer.value().equals("QUESTION " + i), "answer: " + answer.value());
            }
        }
    }

    private static void transaction() throws Exception {
        try (var c = new AnnotationConfigApplicationContext(Listening.class)) {
            var f = new DefaultKafkaProducerFactory<>(Map.<String, Object>of("bootstrap.servers", BOOTSTRAP, "max.block.ms", "20000"),
                new StringSerializer(), new StringSerializer());
            f.setTransactionIdPrefix(NAME + "-");
            var t = new KafkaTemplate<>(f);
            try {
                t.executeInTransaction(o -> {
                    o.send(NAME, "k1", "aborted");
                    throw new IllegalStateException("abort");
                });
            } catch (IllegalStateException e) {
                check("abort".equals(e.getMessage()), "failed: " + e);
            }
            t.executeInTransaction(o -> o.send(new ProducerRecord<>(NAME, 0, "k2", "v2", List.of(
                new org.apache.kafka.common.header.internals.RecordHeader("n", "2".getBytes(StandardCharsets.UTF_8))))));
            var l = c.getBean(Listening.class);
            await("what was committed", () -> l.seen.contains("v2"));
            check(l.wrong.isEmpty() && l.seen.size() == 1, "heard: " + l.seen + l.wrong);
            f.destroy();
        }
    }
}
