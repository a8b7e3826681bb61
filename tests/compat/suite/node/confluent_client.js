// @confluentinc/kafka-javascript: librdkafka in Node.js, with the interface of kafkajs.
'use strict'
const { Kafka, PartitionAssigners } = require('@confluentinc/kafka-javascript').KafkaJS
const { assert, BOOTSTRAP, NAME, GROUP_RECORDS, samples: all, big, same, wait, main } = require('./common.js')

// This client sends an empty key or value as null.
const samples = () => all().map(r => ({ ...r, key: r.key === '' ? 'k' : r.key, value: r.value === '' ? 'v' : r.value }))

const kafka = new Kafka({ 'bootstrap.servers': BOOTSTRAP, log_level: 3 })

async function produce (records, conf = {}) {
  const p = kafka.producer({ 'linger.ms': 5, ...conf })
  await p.connect()
  for (let i = 0; i < records.length; i += 501) {
    const messages = records.slice(i, i + 501).map(r => ({ key: r.key, value: r.value, headers: r.headers, timestamp: String(r.ms), partition: 0 }))
    const reports = await p.send({ topic: NAME, messages })
    if (conf.acks !== 0) assert.strictEqual(Number(reports[0].baseOffset), i)
  }
  await p.disconnect()
}

const consumer = conf => kafka.consumer({ 'group.id': NAME, 'auto.offset.reset': 'earliest', ...conf })
const classic = { 'session.timeout.ms': 6000, 'heartbeat.interval.ms': 300 }

// read gets records of partition 0 from an offset on; this client always reads as a member of a group.
async function read (from, count, conf = {}) {
  const c = consumer({ 'group.id': NAME + '-reader', 'enable.auto.commit': false, ...classic, ...conf })
  await c.connect()
  await c.subscribe({ topics: [NAME] })
  const got = new Map()
  await c.run({ eachMessage: async ({ partition, message }) => { if (partition === 0) got.set(Number(message.offset), message) } })
  if (from > 0) {
    await wait('an assignment', () => c.assignment().length > 0)
    await c.seek({ topic: NAME, partition: 0, offset: String(from) })
  }
  await wait(`${count} records`, () => [...got.keys()].filter(o => o >= from).length >= count)
  await c.disconnect()
  return got
}

async function roundTrip (records, conf) {
  await produce(records, conf)
  const got = await read(0, records.length)
  assert.strictEqual(got.size, records.length)
  for (const [i, m] of got) same(i, { ...m, headers: Object.fromEntries(Object.entries(m.headers ?? {}).map(([k, v]) => [k, [v].flat()[0]])) }, records[i])
}

async function fromMiddle () {
  const records = samples()
  await produce(records)
  const got = await read(1001, records.length - 1001, { 'max.partition.fetch.bytes': 2000 })
  same(1001, got.get(1001), records[1001])
  same(1501, got.get(1501), records[1501])
}

async function fill () {
  const p = kafka.producer({ 'linger.ms': 20 })
  await p.connect()
  for (let i = 0; i < GROUP_RECORDS; i += 500) {
    await p.send({ topic: NAME, messages: Array.from({ length: 500 }, (_, j) => ({ value: `v${i + j}`, partition: (i + j) % 4 })) })
  }
  await p.disconnect()
}

// member joins the group and commits what it read.
async function member (seen, conf) {
  const c = consumer(conf)
  await c.connect()
  await c.subscribe({ topics: [NAME] })
  await c.run({ eachMessage: async ({ message }) => { seen.push(message.value.toString()) } })
  return { assigned: () => c.assignment().length, end: () => c.disconnect() }
}

async function resume () {
  await fill()
  const seen = []
  const a = await member(seen, classic)
  await wait('the first part', () => seen.length >= 1000)
  await a.end()
  const b = await member(seen, classic)
  await wait('the rest', () => new Set(seen).size === GROUP_RECORDS)
  await b.end()
  assert.strictEqual(seen.length, GROUP_RECORDS, 'records read twice')
}

async function two (conf) {
  await fill()
  const seen = []
  const a = await member(seen, conf)
  await wait('the first member has all', () => a.assigned() === 4)
  const b = await member(seen, conf)
  await wait('they share', () => a.assigned() === 2 && b.assigned() === 2)
  await wait('all is read', () => new Set(seen).size === GROUP_RECORDS)
  await a.end()
  await wait('the second member has all', () => b.assigned() === 4)
  await b.end()
}

const admins = {
  async topics (a) {
    assert(await a.createTopics({ topics: [{ topic: NAME, numPartitions: 3, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] }))
    assert.strictEqual(await a.createTopics({ topics: [{ topic: NAME }] }), false, 'created twice')
    await wait('partitions', async () => (await a.fetchTopicMetadata({ topics: [NAME] }))[0].partitions.length === 3)
    await a.deleteTopics({ topics: [NAME] })
    await wait('gone', async () => !(await a.listTopics()).includes(NAME))
  },
  async offsets (a) {
    const records = samples()
    await produce(records)
    for (const i of [0, 1, 4, 1234, records.length - 1]) {
      const at = await a.fetchTopicOffsetsByTimestamp(NAME, records[i].ms)
      assert.strictEqual(Number(at.find(p => p.partition === 0).offset), i)
    }
    await a.deleteTopicRecords({ topic: NAME, partitions: [{ partition: 0, offset: '100' }] })
    const ends = (await a.fetchTopicOffsets(NAME)).find(p => p.partition === 0)
    assert.deepStrictEqual([ends.low, ends.high], ['100', String(records.length)])
  },
  async groups (a) {
    await fill()
    const seen = []
    const m = await member(seen, classic)
    await wait('all is read', () => seen.length === GROUP_RECORDS)
    const d = (await a.describeGroups([NAME])).groups[0]
    assert.strictEqual(d.members.length, 1)
    assert((await a.listGroups()).groups.some(g => g.groupId === NAME), 'listed')
    await m.end()
    const offsets = (await a.fetchOffsets({ groupId: NAME }))[0].partitions
    assert.strictEqual(offsets.reduce((s, p) => s + Number(p.offset), 0), GROUP_RECORDS)
    await a.deleteGroups([NAME])
    assert(!(await a.listGroups()).groups.some(g => g.groupId === NAME), 'deleted')
  }
}

async function transaction () {
  const p = kafka.producer({ 'transactional.id': NAME, 'transaction.timeout.ms': 20000 })
  await p.connect()
  for (const [value, end] of [['aborted', 'abort'], ['committed', 'commit']]) {
    const t = await p.transaction()
    await t.send({ topic: NAME, messages: [{ value, partition: 0 }] })
    await t[end]()
  }
  await p.disconnect()
  const got = await read(0, 1, { 'isolation.level': 'read_committed' })
  assert.strictEqual([...got.values()][0].value.toString(), 'committed')
}

main(async name => {
  const [kind, what] = name.split(/-(.*)/)
  if (kind === 'codec') return roundTrip(samples(), { 'compression.codec': what })
  if (kind === 'acks') return roundTrip(samples(), { acks: what === 'all' ? -1 : Number(what) })
  if (kind === 'admin') {
    const a = kafka.admin()
    await a.connect()
    return admins[what](a)
  }
  return {
    idempotent: () => roundTrip(samples(), { 'enable.idempotence': true, 'batch.num.messages': 50 }),
    big: () => roundTrip(big()),
    'from-middle': fromMiddle,
    'group-resume': resume,
    'group-range': () => two({ ...classic, 'partition.assignment.strategy': PartitionAssigners.range }),
    'group-cooperative': () => two({ ...classic, 'partition.assignment.strategy': PartitionAssigners.cooperativeSticky }),
    'group-consumer': () => two({ 'group.protocol': 'consumer' }),
    transaction
  }[name]()
})
