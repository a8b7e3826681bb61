"""aiokafka: a client for asyncio."""
import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError

from common import BOOTSTRAP, GROUP_RECORDS, NAME, big, check, same, samples


async def produce(records, **conf):
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, **conf) as p:
        sent = [await p.send(NAME, value=v, key=k, headers=h, timestamp_ms=ts, partition=0) for k, v, h, ts in records]
        await p.flush()
        for i, f in enumerate(sent):
            md = await f
            check(conf.get("acks") == 0 or md.offset == i, f"record {i} got offset {md}")


def consumer(*topics, **conf):
    return AIOKafkaConsumer(*topics, **{"bootstrap_servers": BOOTSTRAP, "auto_offset_reset": "earliest",
                                        "enable_auto_commit": False, "session_timeout_ms": 6000,
                                        "heartbeat_interval_ms": 300, **conf})


async def read(c, count, limit=40):
    got, until = [], time.time() + limit
    while len(got) < count and time.time() < until:
        for records in (await c.getmany(timeout_ms=500, max_records=count - len(got))).values():
            got += records
    check(len(got) == count, f"read {len(got)} records, want {count}")
    return got


def plain(m):
    return m.offset, m.key, m.value, m.headers, m.timestamp


async def round_trip(records, **conf):
    await produce(records, **conf)
    tp = TopicPartition(NAME, 0)
    async with consumer() as c:
        c.assign([tp])
        await c.seek_to_beginning(tp)
        for i, m in enumerate(await read(c, len(records))):
            same(i, plain(m), records[i])
        check((await c.end_offsets([tp]))[tp] == len(records), "end offset")


async def by_time():
    records = samples()
    await produce(records, compression_type="lz4")
    tp = TopicPartition(NAME, 0)
    async with consumer() as c:
        for i in (0, 1, 4, 1234, len(records) - 1):
            at = (await c.offsets_for_times({tp: records[i][3]}))[tp]
            check(at.offset == i, f"by time of {i}: {at}")
        check((await c.offsets_for_times({tp: records[-1][3] + 1}))[tp] is None, "after the last")


async def from_middle():
    records = samples()
    await produce(records)
    tp = TopicPartition(NAME, 0)
    async with consumer(max_partition_fetch_bytes=2000) as c:
        c.assign([tp])
        c.seek(tp, 1001)
        got = await read(c, len(records) - 1001)
        check(got[0].offset == 1001, "first offset")
        same(1501, plain(got[500]), records[1501])


async def fill():
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=20) as p:
        for f in [await p.send(NAME, value=b"v%d" % i, key=b"k%d" % i, partition=i % 4) for i in range(GROUP_RECORDS)]:
            await f


async def group_resume():
    await fill()
    seen = set()
    for part in (1500, GROUP_RECORDS - 1500):
        async with consumer(NAME, group_id=NAME) as c:
            got = {m.value for m in await read(c, part)}
            check(len(got) == part and not got & seen, "read twice")
            seen |= got
            await c.commit()
    check(len(seen) == GROUP_RECORDS, f"read {len(seen)}")


class Member:
    """A member of the group that commits what it read, until it is told to end."""

    def __init__(self, seen):
        self.seen, self.assigned, self.ending = seen, 0, False
        self.task = asyncio.create_task(self.run())

    async def run(self):
        async with consumer(NAME, group_id=NAME) as c:
            while not self.ending:
                for records in (await c.getmany(timeout_ms=100)).values():
                    self.seen.update(m.value for m in records)
                    await c.commit()
                self.assigned = len(c.assignment())

    async def end(self):
        self.ending = True
        await asyncio.wait_for(self.task, 20)


async def wait(what, ok):
    until = time.time() + 30
    while not (await r if asyncio.iscoroutine(r := ok()) else r):
        check(time.time() < until, f"waited in vain: {what}")
        await asyncio.sleep(0.05)


async def group_two():
    await fill()
    seen = set()
    a = Member(seen)
    await wait("the first member has all", lambda: a.assigned == 4)
    b = Member(seen)
    await wait("they share", lambda: a.assigned == 2 and b.assigned == 2)
    await wait("all is read", lambda: len(seen) == GROUP_RECORDS)
    await a.end()
    await wait("the second member has all", lambda: b.assigned == 4)
    await b.end()


async def admin_topics(a):
    await a.create_topics([NewTopic(NAME, 3, 1, topic_configs={"retention.ms": "3600000"})])
    try:
        answer = await a.create_topics([NewTopic(NAME, 3, 1)])
        check(answer.topic_errors[0][1] == TopicAlreadyExistsError.errno, f"created twice: {answer}")
    except TopicAlreadyExistsError:
        pass
    await wait("partitions", lambda: partitions(a, 3))
    await a.create_partitions({NAME: NewPartitions(5)})
    await wait("more partitions", lambda: partitions(a, 5))
    await a.delete_topics([NAME])
    await wait("gone", lambda: partitions(a, 0))


async def partitions(a, want):
    return len((await a.describe_topics([NAME]))[0]["partitions"]) == want


async def admin_configs(a):
    await a.create_topics([NewTopic(NAME, 1, 1)])
    await a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, NAME, configs={"retention.ms": "1234567"})])
    await wait("described", lambda: described(a, "1234567"))


async def described(a, text):
    return text in str(await a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, NAME)]))


async def admin_groups(a):
    await fill()
    async with consumer(NAME, group_id=NAME) as c:
        await read(c, GROUP_RECORDS)
        await c.commit()
        check("Stable" in str(await a.describe_consumer_groups([NAME])), "described")
        check(NAME in str(await a.list_consumer_groups()), "listed")
    offsets = await a.list_consumer_group_offsets(NAME)
    check(sum(o.offset for o in offsets.values()) == GROUP_RECORDS, f"offsets: {offsets}")


async def admin_records(a):
    from aiokafka.admin import RecordsToDelete
    await produce(samples())
    tp = TopicPartition(NAME, 0)
    await a.delete_records({tp: RecordsToDelete(before_offset=100)})
    async with consumer() as c:
        check((await c.beginning_offsets([tp]))[tp] == 100, "earliest")


async def admin_cluster(a):
    d = await a.describe_cluster()
    check(len(d["brokers"]) == 1, f"cluster: {d}")


async def transaction():
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=NAME) as p:
        await p.begin_transaction()
        await p.send_and_wait(NAME, b"aborted", partition=0)
        await p.abort_transaction()
        async with p.transaction():
            await p.send_and_wait(NAME, b"committed", partition=0)
    async with consumer(isolation_level="read_committed") as c:
        c.assign([TopicPartition(NAME, 0)])
        check((await read(c, 1))[0].value == b"committed", "read")


async def main(case):
    if case.startswith("codec-"):
        return await round_trip(samples(), compression_type=None if case == "codec-none" else case[6:])
    if case.startswith("acks-"):
        return await round_trip(samples(), acks=case[5:] if case == "acks-all" else int(case[5:]))
    if case.startswith("admin-"):
        a = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await a.start()
        try:
            return await globals()[case.replace("-", "_")](a)
        finally:
            await a.close()
    return await {"idempotent": lambda: round_trip(samples(), enable_idempotence=True, max_batch_size=2000),
                  "big": lambda: round_trip(big()), "by-time": by_time, "from-middle": from_middle,
                  "group-resume": group_resume, "group-two": group_two, "transaction": transaction}[case]()


asyncio.run(main(sys.argv[1]))
