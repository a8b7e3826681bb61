import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** One aborted and one committed transaction; readers with isolation see the second only. */
final class Transactions {
    static void run() throws Exception {
        String topic = Compat.NAME;
        try (var p = Compat.producer(Map.of("transactional.id", topic))) {
            p.initTransactions();
            p.beginTransaction();
            p.send(new ProducerRecord<>(topic, 0, null, null, Compat.bytes("aborted"))).get();
            p.abortTransaction();
            p.beginTransaction();
            p.send(new ProducerRecord<>(topic, 0, null, null, Compat.bytes("committed"))).get();
            p.commitTransaction();
        }
        TopicPartition tp = new TopicPartition(topic, 0);
        try (var c = Compat.consumer(Map.of("isolation.level", "read_committed"))) {
            c.assign(List.of(tp));
            var got = Compat.read(c, 1);
            Compat.check(new String(got.get(0).value()).equals("committed"), "read " + new String(got.get(0).value()));
        }
    }
}
