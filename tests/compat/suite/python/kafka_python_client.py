"""kafka-python: a client in Python alone."""
import sys
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from common import BOOTSTRAP, GROUP_RECORDS, NAME, big, check, same, samples


def produce(records, **conf):
    p = KafkaProducer(bootstrap_servers=BOOTSTRAP, **conf)
    sent = [p.send(NAME, value=v, key=k, headers=h, timestamp_ms=ts, partition=0) for k, v, h, ts in records]
    p.flush(30)
    for i, f in enumerate(sent):
        md = f.get(30)
        check(conf.get("acks") == 0 or md.offset == i, f"record {i} got offset {md.offset}")
    p.close(10)


def consumer(*topics, **conf):
    return KafkaConsumer(*topics, **{"bootstrap_servers": BOOTSTRAP, "group_id": NAME, "auto_offset_reset": "earliest",
                                     "enable_auto_commit": False, "session_timeout_ms": 6000, "heartbeat_interval_ms": 300,
                                     **conf})


def read(c, count, limit=40):
    got, until = [], time.time() + limit
    while len(got) < count and time.time() < until:
        for records in c.poll(500, max_records=count - len(got)).values():
            got += records
    check(len(got) == count, f"read {len(got)} records, want {count}")
    return got


def plain(m):
    return m.offset, m.key, m.value, m.headers, m.timestamp


def round_trip(records, **conf):
    produce(records, **conf)
    tp = TopicPartition(NAME, 0)
    c = consumer(group_id=None)
    c.assign([tp])
    c.seek_to_beginning(tp)
    for i, m in enumerate(read(c, len(records))):
        same(i, plain(m), records[i])
    check(c.end_offsets([tp])[tp] == len(records), "end offset")
    c.close()


def by_time():
    records = samples()
    produce(records, compression_type="lz4")
    tp = TopicPartition(NAME, 0)
    c = consumer(group_id=None)
    for i in (0, 1, 4, 1234, len(records) - 1):
        at = c.offsets_for_times({tp: records[i][3]})[tp]
        check(at.offset == i, f"by time of {i}: {at}")
    check(c.offsets_for_times({tp: records[-1][3] + 1})[tp] is None, "after the last")
    c.close()


def from_middle():
    records = samples()
    produce(records)
    tp = TopicPartition(NAME, 0)
    c = consumer(group_id=None, max_partition_fetch_bytes=2000)
    c.assign([tp])
    c.seek(tp, 1001)
    got = read(c, len(records) - 1001)
    check(got[0].offset == 1001, "first offset")
    same(1501, plain(got[500]), records[1501])
    c.close()


def fill():
    p = KafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=20)
    for i in range(GROUP_RECORDS):
        p.send(NAME, value=b"v%d" % i, key=b"k%d" % i, partition=i % 4)
    p.flush(30)
    p.close(10)


def group_resume():
    fill()
    seen = set()
    for part in (1500, GROUP_RECORDS - 1500):
        c = consumer(NAME)
        got = {m.value for m in read(c, part)}
        check(len(got) == part and not got & seen, "read twice")
        seen |= got
        c.commit()
        c.close()
    check(len(seen) == GROUP_RECORDS, f"read {len(seen)}")


class Member(threading.Thread):
    """A member of the group that commits what it read, until it is told to end."""

    def __init__(self, seen):
        super().__init__(daemon=True)
        self.seen, self.assigned, self.ending, self.failed = seen, 0, False, None
        self.start()

    def run(self):
        try:
            c = consumer(NAME)
            while not self.ending:
                for records in c.poll(100).values():
                    self.seen.update(m.value for m in records)
                    c.commit()
                self.assigned = len(c.assignment())
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


def group_two():
    fill()
    seen = set()
    a = Member(seen)
    wait("the first member has all", lambda: a.assigned == 4)
    b = Member(seen)
    wait("they share", lambda: a.assigned == 2 and b.assigned == 2)
    wait("all is read", lambda: len(seen) == GROUP_RECORDS)
    a.end()
    wait("the second member has all", lambda: b.assigned == 4)
    b.end()


def admin_topics(a):
    a.create_topics([NewTopic(NAME, 3, 1, topic_configs={"retention.ms": "3600000"})])
    try:
        a.create_topics([NewTopic(NAME, 3, 1)])
    except TopicAlreadyExistsError:
        pass
    else:
        raise AssertionError("created twice")
    wait("partitions", lambda: len(a.describe_topics([NAME])[0]["partitions"]) == 3)
    a.create_partitions({NAME: NewPartitions(5)})
    wait("more partitions", lambda: len(a.describe_topics([NAME])[0]["partitions"]) == 5)
    a.delete_topics([NAME])
    wait("gone", lambda: NAME not in a.list_topics())


def admin_configs(a):
    a.create_topics([NewTopic(NAME, 1, 1)])
    a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, NAME, configs={"retention.ms": "1234567"})])
    wait("described", lambda: "1234567" in str(a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, NAME)])))


def admin_groups(a):
    fill()
    c = consumer(NAME)
    read(c, GROUP_RECORDS)
    c.commit()
    d = str(a.describe_groups([NAME]))
    check("Stable" in d, f"described: {d:.300}")
    check(NAME in str(a.list_groups()), "listed")
    c.close()
    tp = TopicPartition(NAME, 1)
    offsets = a.list_group_offsets([NAME])
    check("1000" in str(offsets), f"offsets: {offsets}")
    a.alter_group_offsets(NAME, {tp: OffsetAndMetadata(5, "", -1)})
    check("offset=5" in str(a.list_group_offsets([NAME])), "altered")
    a.delete_groups([NAME])


def admin_records(a):
    produce(samples())
    tp = TopicPartition(NAME, 0)
    a.delete_records({tp: 100})
    c = consumer(group_id=None)
    check(c.beginning_offsets([tp])[tp] == 100, "earliest")
    c.close()


def admin_cluster(a):
    d = a.describe_cluster()
    check(len(d["brokers"]) == 1, f"cluster: {d}")


def main(case):
    if case.startswith("codec-"):
        return round_trip(samples(), compression_type=None if case == "codec-none" else case[6:])
    if case.startswith("acks-"):
        acks = case[5:]
        return round_trip(samples(), acks=acks if acks == "all" else int(acks), enable_idempotence=False)
    if case.startswith("admin-"):
        return globals()[case.replace("-", "_")](KafkaAdminClient(bootstrap_servers=BOOTSTRAP))
    return {"idempotent": lambda: round_trip(samples(), enable_idempotence=True, batch_size=2000),
            "big": lambda: round_trip(big()), "by-time": by_time, "from-middle": from_middle,
            "group-resume": group_resume, "group-two": group_two}[case]()


main(sys.argv[1])
