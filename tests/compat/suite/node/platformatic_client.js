// @platformatic/kafka: a client in TypeScript with the newest versions of the protocol.
'use strict'
const { Producer, Consumer, Admin, stringSerializers, MessagesStreamModes, ListOffsetTimestamps, ConfigResourceTypes } = require('@platformatic/kafka')
const { assert, BOOTSTRAP, NAME, GROUP_RECORDS, samples, big, same, wait, main } = require('./common.js')

const base = { clientId: 'compat', bootstrapBrokers: [BOOTSTRAP], autocreateTopics: true }

async function produce (records, conf = {}) {
  const p = new Producer({ ...base, serializers: { ...stringSerializers, headerValue: b => b }, ...conf })
  for (let i = 0; i < records.length; i += 501) {
    const messages = records.slice(i, i + 501).map(r => ({ topic: NAME, partition: 0, key: r.key ?? undefined, value: r.value ?? undefined, headers: r.headers, timestamp: BigInt(r.ms) }))
    const { offsets } = await p.send({ messages })
    if (conf.acks !== 0) assert.strictEqual(Number(offsets[0].offset), i)
  }
  await p.close()
}

function consumer (conf = {}) {
  return new Consumer({ ...base, groupId: NAME, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTime: 200, ...conf })
}

// read gets count records of partition 0 from an offset on.
async function read (from, count, conf) {
  const c = consumer({ groupId: NAME + '-reader', ...conf })
  const mode = from === 0 ? { mode: MessagesStreamModes.EARLIEST } : { mode: MessagesStreamModes.MANUAL, offsets: [0, 1, 2, 3].map(partition => ({ topic: NAME, partition, offset: partition === 0 ? BigInt(from) : 0n })) }
  const stream = await c.consume({ topics: [NAME], autocommit: false, ...mode })
  const got = []
  stream.on('data', m => { if (m.partition === 0) got.push(m) })
  await wait(`${count} records`, () => got.length >= count)
  await c.close(true)
  return got.map(m => ({ ...m, offset: m.offset, timestamp: m.timestamp, key: m.key, value: m.value, headers: Object.fromEntries([...m.headers].map(([k, v]) => [k.toString(), v])) }))
}

async function roundTrip (records, conf) {
  await produce(records, conf)
  const got = await read(0, records.length)
  assert.strictEqual(got.length, records.length)
  got.forEach((m, i) => same(i, m, records[i]))
}

async function byTime () {
  const records = samples()
  await produce(records)
  const c = consumer()
  for (const i of [0, 1, 4, 1234, records.length - 1]) {
    const at = await c.listOffsetsWithTimestamps({ topics: [NAME], partitions: { [NAME]: [0] }, timestamp: BigInt(records[i].ms) })
    assert.strictEqual(Number(at.get(NAME).get(0).offset), i)
  }
  const end = await c.listOffsets({ topics: [NAME], timestamp: ListOffsetTimestamps.LATEST })
  assert.strictEqual(Number(end.get(NAME)[0]), records.length)
  await c.close(true)
}

async function fromMiddle () {
  const records = samples()
  await produce(records)
  const got = await read(1001, records.length - 1001, { maxBytesPerPartition: 2000 })
  same(1001, got[0], records[1001])
  same(1501, got[500], records[1501])
}

async function fill () {
  const p = new Producer({ ...base, serializers: stringSerializers })
  for (let i = 0; i < GROUP_RECORDS; i += 500) {
    await p.send({ messages: Array.from({ length: 500 }, (_, j) => ({ topic: NAME, value: `v${i + j}`, partition: (i + j) % 4 })) })
  }
  await p.close()
}

// member joins the group and commits what it read; assigned() is how many partitions it has.
async function member (seen, conf) {
  const c = consumer(conf)
  const stream = await c.consume({ topics: [NAME], autocommit: true, mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest' })
  stream.on('data', m => seen.push(m.value.toString()))
  return {
    assigned: () => (c.assignments ?? []).reduce((n, a) => n + a.partitions.length, 0),
    end: async () => {
      await stream.close()
      await c.close(true)
    }
  }
}

async function resume () {
  await fill()
  const seen = []
  const a = await member(seen)
  await wait('all of the first part', () => seen.length === GROUP_RECORDS)
  await a.end()
  await fill()
  const b = await member(seen)
  await wait('the rest', () => seen.length >= 2 * GROUP_RECORDS)
  await b.end()
  assert.strictEqual(seen.length, 2 * GROUP_RECORDS, 'records read twice')
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
    await a.createTopics({ topics: [NAME], partitions: 3, replicas: 1, configs: [{ name: 'retention.ms', value: '3600000' }] })
    await assert.rejects(a.createTopics({ topics: [NAME], partitions: 3, replicas: 1 }))
    const count = async () => (await a.metadata({ topics: [NAME], forceUpdate: true })).topics.get(NAME).partitionsCount
    await wait('partitions', async () => await count() === 3)
    await a.createPartitions({ topics: [{ name: NAME, count: 5, assignments: null }], validateOnly: false })
    await wait('more partitions', async () => await count() === 5)
    await a.deleteTopics({ topics: [NAME] })
    await wait('gone', async () => !(await a.listTopics()).includes(NAME))
  },
  async configs (a) {
    await a.createTopics({ topics: [NAME], partitions: 1, replicas: 1 })
    await a.incrementalAlterConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: NAME, configs: [{ name: 'retention.ms', value: '1234567', configOperation: 0 }] }] })
    await wait('set', async () => {
      const [d] = await a.describeConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: NAME }] })
      return d.configs.find(c => c.name === 'retention.ms').value === '1234567'
    })
  },
  async groups (a) {
    await fill()
    const seen = []
    const m = await member(seen)
    await wait('all is read', () => seen.length === GROUP_RECORDS)
    const d = (await a.describeGroups({ groups: [NAME] })).get(NAME)
    assert.strictEqual(d.state, 'Stable')
    assert.strictEqual(d.members.size, 1)
    assert((await a.listGroups({})).has(NAME), 'listed')
    await m.end()
    const [offsets] = await a.listConsumerGroupOffsets({ groups: [NAME] })
    assert.strictEqual(offsets.topics[0].partitions.reduce((s, p) => s + Number(p.committedOffset), 0), GROUP_RECORDS)
    await a.deleteGroups({ groups: [NAME] })
  },
  async records (a) {
    await produce(samples())
    await a.deleteRecords({ topics: [{ name: NAME, partitions: [{ partition: 0, offset: 100n }] }] })
    const [d] = await a.listOffsets({ topics: [{ name: NAME, partitions: [{ partitionIndex: 0, timestamp: ListOffsetTimestamps.EARLIEST }] }] })
    assert.strictEqual(Number(d.partitions[0].offset), 100)
  },
  async cluster (a) {
    const md = await a.metadata({ topics: [] })
    assert.strictEqual(md.brokers.size, 1)
  }
}

main(async name => {
  const [kind, what] = name.split(/-(.*)/)
  if (kind === 'codec') return roundTrip(samples(), { compression: what })
  if (kind === 'acks') return roundTrip(samples(), { acks: what === 'all' ? -1 : Number(what) })
  if (kind === 'admin') return admins[what](new Admin(base))
  return {
    idempotent: () => roundTrip(samples(), { idempotent: true, acks: -1 }),
    big: () => roundTrip(big()),
    'by-time': byTime,
    'from-middle': fromMiddle,
    'group-resume': resume,
    'group-two': () => two(),
    'group-consumer': () => two({ groupProtocol: 'consumer', rebalanceTimeout: 60000 })
  }[name]()
})
