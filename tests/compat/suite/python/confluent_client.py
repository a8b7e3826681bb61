"""confluent-kafka-python: librdkafka as most Python programs have it."""
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic,
                                   OffsetSpec, ResourceType)

from common import BOOTSTRAP, GROUP_RECORDS, NAME, START_MS, big, check, same, samples


def produce(records, **conf):
    p = Producer({"bootstrap.servers": BOOTSTRAP, **conf})
    failed = []
    for key, value, headers, ts in records:
        p.produce(NAME, value=value, key=key, headers=headers, timestamp=ts, partition=0,
                  on_delivery=lambda err, _: failed.append(err) if err else None)
        p.poll(0)
    check(p.flush(30) == 0, "not all was sent")
    check(not failed, f"refused: {failed[:3]}")


def consumer(**conf):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": NAME, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "session.timeout.ms": 6000, "heartbeat.interval.ms": 300, **conf})


def read(c, count, limit=40):
    got, until = [], time.time() + limit
    while len(got) < count and time.time() < until:
        for m in c.consume(500, 0.5):
            if m.error():
                raise KafkaException(m.error())
            got.append(m)
    check(len(got) == count, f"read {len(got)} records, want {count}")
    return got


def plain(m):
    return m.offset(), m.key(), m.value(), m.headers(), m.timestamp()[1]


def round_trip(records, **conf):
    produce(records, **conf)
    c = consumer()
    c.assign([TopicPartition(NAME, 0, OFFSET_BEGINNING)])
    for i, m in enumerate(read(c, len(records))):
        same(i, plain(m), records[i])
    check(c.get_watermark_offsets(TopicPartition(NAME, 0), 10) == (0, len(records)), "watermarks")
    c.close()


def by_time():
    records = samples()
    produce(records, **{"compression.type": "lz4"})
    c = consumer()
    for i in (0, 1, 4, 1234, len(records) - 1):
        at = c.offsets_for_times([TopicPartition(NAME, 0, records[i][3])], 10)[0]
        check(at.offset == i, f"by time of {i}: {at}")
    c.close()


def from_middle():
    records = samples()
    produce(records)
    c = consumer(**{"fetch.message.max.bytes": 2000})
    c.assign([TopicPartition(NAME, 0, 1001)])
    got = read(c, len(records) - 1001)
    check(got[0].offset() == 1001, "first offset")
    same(1501, plain(got[500]), records[1501])
    c.close()


def fill():
    p = Producer({"bootstrap.servers": BOOTSTRAP})
    for i in range(GROUP_RECORDS):
        p.produce(NAME, value=b"v%d" % i, key=b"k%d" % i, partition=i % 4)
        p.poll(0)
    check(p.flush(30) == 0, "not all was sent")


def group_resume():
    fill()
    seen = set()
    for part in (1500, GROUP_RECORDS - 1500):
        c = consumer()
        c.subscribe([NAME])
        got = read_some(c, part)
        check(not got & seen, "read twice")
        seen |= got
        c.commit(asynchronous=False)
        c.close()
    check(len(seen) == GROUP_RECORDS, f"read {len(seen)}")


def read_some(c, count):
    got, until = set(), time.time() + 30
    while len(got) < count and time.time() < until:
        for m in c.consume(min(100, count - len(got)), 0.5):
            check(not m.error(), m.error())
            got.add(m.value())
    check(len(got) == count, f"read {len(got)}, want {count}")
    return got


class Member(threading.Thread):
    """A member of the group that commits what it read, until it is told to end."""

    def __init__(self, seen, **conf):
        super().__init__(daemon=True)
        self.seen, self.conf, self.assigned, self.ending, self.failed = seen, conf, 0, False, None
        self.start()

    def run(self):
        try:
            c = consumer(**self.conf)
            c.subscribe([NAME])
            while not self.ending:
                m = c.poll(0.1)
                self.assigned = len(c.assignment())
                if m is not None and not m.error():
                    self.seen.add(m.value())
                    c.commit(m, asynchronous=True)
            c.close()
        except Exception as e:  # shown by end()
            self.failed = e

    def end(self):
        self.ending = True
        self.join(20)
        check(self.failed is None, self.failed)


def wait(what, ok):
    until = time.time() + 30
    while not ok():
        check(time.time() < until, f"waited in vain: {what}")
        time.sleep(0.05)


def two(**conf):
    fill()
    seen = set()
    a = Member(seen, **conf)
    wait("the first member has all", lambda: a.assigned == 4)
    b = Member(seen, **conf)
    wait("they share", lambda: a.assigned == 2 and b.assigned == 2)
    wait("all is read", lambda: len(seen) == GROUP_RECORDS)
    a.end()
    wait("the second member has all", lambda: b.assigned == 4)
    b.end()


def done(futures):
    return {k: f.result(20) for k, f in futures.items()}


def admin_topics(a):
    done(a.create_topics([NewTopic(NAME, 3, 1, config={"retention.ms": "3600000"})]))
    try:
        done(a.create_topics([NewTopic(NAME, 3, 1)]))
    except KafkaException as e:
        check(e.args[0].name() == "TOPIC_ALREADY_EXISTS", e)
    else:
        raise AssertionError("created twice")
    wait("partitions", lambda: len(a.list_topics(NAME, 10).topics[NAME].partitions) == 3)
    done(a.create_partitions([NewPartitions(NAME, 5)]))
    wait("more partitions", lambda: len(a.list_topics(NAME, 10).topics[NAME].partitions) == 5)
    done(a.delete_topics([NAME]))
    wait("gone", lambda: NAME not in a.list_topics(timeout=10).topics)


def admin_configs(a):
    done(a.create_topics([NewTopic(NAME, 1, 1)]))
    r = ConfigResource(ResourceType.TOPIC, NAME)
    change = ConfigResource(ResourceType.TOPIC, NAME, incremental_configs=[
        ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)])
    done(a.incremental_alter_configs([change]))
    described = lambda key: list(done(a.describe_configs([r])).values())[0][key].value
    wait("set", lambda: described("retention.ms") == "1234567")
    r2 = ConfigResource(ResourceType.TOPIC, NAME, set_config={"segment.ms": "600000"})
    done(a.alter_configs([r2]))
    wait("replaced by the old call", lambda: described("segment.ms") == "600000" and described("retention.ms") == "604800000")


def admin_groups(a):
    fill()
    c = consumer()
    c.subscribe([NAME])
    read_some(c, GROUP_RECORDS)
    c.commit(asynchronous=False)
    d = done(a.describe_consumer_groups([NAME]))[NAME]
    check(len(d.members) == 1 and d.state.name == "STABLE", f"described: {d.state} {d.members}")
    check(NAME in {g.group_id for g in a.list_consumer_groups().result(20).valid}, "listed")
    c.close()
    tp = TopicPartition(NAME, 1, 5)
    offsets = done(a.list_consumer_group_offsets([ConsumerGroupTopicPartitions(NAME)]))[NAME]
    check(sum(t.offset for t in offsets.topic_partitions) == GROUP_RECORDS, "offsets")
    done(a.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(NAME, [tp])]))
    offsets = done(a.list_consumer_group_offsets([ConsumerGroupTopicPartitions(NAME, [TopicPartition(NAME, 1)])]))[NAME]
    check(offsets.topic_partitions[0].offset == 5, "altered")
    done(a.delete_consumer_groups([NAME]))


def admin_records(a):
    produce(samples())
    tp = TopicPartition(NAME, 0, 100)
    check(done(a.delete_records([tp]))[tp].low_watermark == 100, "low watermark")
    at = done(a.list_offsets({TopicPartition(NAME, 0): OffsetSpec.earliest()}))
    check(list(at.values())[0].offset == 100, "earliest")


def admin_cluster(a):
    d = a.describe_cluster().result(20)
    check(len(d.nodes) == 1 and d.cluster_id and d.controller, "cluster")


def transaction():
    p = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": NAME})
    p.init_transactions(20)
    p.begin_transaction()
    p.produce(NAME, b"aborted", partition=0)
    p.flush(10)
    p.abort_transaction(20)
    p.begin_transaction()
    p.produce(NAME, b"committed", partition=0)
    p.commit_transaction(20)
    c = consumer(**{"isolation.level": "read_committed"})
    c.assign([TopicPartition(NAME, 0, OFFSET_BEGINNING)])
    check(read(c, 1)[0].value() == b"committed", "read")


def main(case):
    if case.startswith("codec-"):
        return round_trip(samples(), **{"compression.type": case[6:]})
    if case.startswith("acks-"):
        return round_trip(samples(), acks=case[5:])
    if case.startswith("admin-"):
        return globals()[case.replace("-", "_")](AdminClient({"bootstrap.servers": BOOTSTRAP}))
    return {
        "idempotent": lambda: round_trip(samples(), **{"enable.idempotence": True, "batch.num.messages": 50}),
        "big": lambda: round_trip(big()), "by-time": by_time, "from-middle": from_middle, "transaction": transaction,
        "group-resume": group_resume, "group-range": lambda: two(**{"partition.assignment.strategy": "range"}),
        "group-cooperative": lambda: two(**{"partition.assignment.strategy": "cooperative-sticky"}),
        "group-consumer": lambda: two_new(),
    }[case]()


def two_new():
    """The new protocol refuses the settings that its broker decides."""
    global consumer
    consumer = lambda **conf: Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": NAME, "auto.offset.reset": "earliest",
                                        "enable.auto.commit": False, "group.protocol": "consumer"})
    two()


main(sys.argv[1])
