// kafkajs: the client that most Node.js programs have.
'use strict'
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const { assert, BOOTSTRAP, NAME, GROUP_RECORDS, samples, big, same, wait, main } = require('./common.js')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new (require('kafkajs-lz4'))().codec

const kafka = new Kafka({ brokers: [BOOTSTRAP], logLevel: logLevel.ERROR })

async function produce (records, { acks = -1, compression = CompressionTypes.None, ...conf } = {}) {
  const p = kafka.producer(conf)
  await p.connect()
  for (let i = 0; i < records.length; i += 501) {
    const messages = records.slice(i, i + 501).map(r => ({ key: r.key, value: r.value, headers: r.headers, timestamp: String(r.ms), partition: 0 }))
    const [md] = await p.send({ topic: NAME, acks, compression, messages })
    if (acks !== 0) assert.strictEqual(Number(md.baseOffset), i)
  }
  await p.disconnect()
}

// read gets records of partition 0 from an offset on; kafkajs always reads as a member of a group.
async function read (from, count, conf = {}) {
  const c = kafka.consumer({ groupId: NAME + '-reader', sessionTimeout: 6000, heartbeatInterval: 300, ...conf })
  await c.connect()
  await c.subscribe({ topics: [NAME], fromBeginning: true })
  const got = []
  await c.run({ autoCommit: false, eachMessage: async ({ partition, message }) => { if (partition === 0) got.push(message) } })
  if (from > 0) c.seek({ topic: NAME, partition: 0, offset: String(from) })
  await wait(`${count} records`, () => got.length >= count)
  await c.disconnect()
  return got
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
  const admin = kafka.admin()
  await admin.connect()
  for (const i of [0, 1, 4, 1234, records.length - 1]) {
    const at = await admin.fetchTopicOffsetsByTimestamp(NAME, records[i].ms)
    assert.strictEqual(Number(at.find(p => p.partition === 0).offset), i)
  }
  await admin.disconnect()
}

async function fromMiddle () {
  const records = samples()
  await produce(records)
  const got = (await read(1001, records.length - 1001, { maxBytesPerPartition: 2000 })).filter(m => Number(m.offset) >= 1001)
  same(1001, got[0], records[1001])
  same(1501, got.find(m => m.offset === '1501'), records[1501])
}

async function fill () {
  const p = kafka.producer()
  await p.connect()
  for (let i = 0; i < GROUP_RECORDS; i += 500) {
    await p.send({ topic: NAME, messages: Array.from({ length: 500 }, (_, j) => ({ value: `v${i + j}`, partition: (i + j) % 4 })) })
  }
  await p.disconnect()
}

// member joins the group and commits what it read; assigned is how many partitions it has.
async function member (seen) {
  const c = kafka.consumer({ groupId: NAME, sessionTimeout: 6000, heartbeatInterval: 300, maxBytesPerPartition: 2000 })
  const m = { assigned: 0, end: () => c.disconnect() }
  c.on(c.events.GROUP_JOIN, e => { m.assigned = (e.payload.memberAssignment[NAME] ?? []).length })
  await c.connect()
  await c.subscribe({ topics: [NAME], fromBeginning: true })
  await c.run({ eachMessage: async ({ message }) => { seen.push(message.value.toString()) } })
  return m
}

async function resume () {
  await fill()
  const seen = []
  const a = await member(seen)
  await wait('the first part', () => seen.length >= 1000)
  await a.end()
  const b = await member(seen)
  await wait('the rest', () => new Set(seen).size === GROUP_RECORDS)
  await b.end()
  assert.strictEqual(seen.length, GROUP_RECORDS, 'records read twice')
}

async function two () {
  await fill()
  const seen = []
  const a = await member(seen)
  await wait('the first member has all', () => a.assigned === 4)
  const b = await member(seen)
  await wait('they share', () => a.assigned === 2 && b.assigned === 2)
  await wait('all is read', () => new Set(seen).size === GROUP_RECORDS)
  await a.end()
  await wait('the second member has all', () => b.assigned === 4)
  await b.end()
}

const admins = {
  async topics (a) {
    assert(await a.createTopics({ topics: [{ topic: NAME, numPartitions: 3, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] }))
    assert.strictEqual(await a.createTopics({ topics: [{ topic: NAME }] }), false, 'created twice')
    const count = async () => (await a.fetchTopicMetadata({ topics: [NAME] })).topics[0].partitions.length
    await wait('partitions', async () => await count() === 3)
    await a.createPartitions({ topicPartitions: [{ topic: NAME, count: 5 }] })
    await wait('more partitions', async () => await count() === 5)
    await a.deleteTopics({ topics: [NAME] })
    await wait('gone', async () => !(await a.listTopics()).includes(NAME))
  },
  async configs (a) {
    await a.createTopics({ topics: [{ topic: NAME }] })
    await a.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: NAME, configEntries: [{ name: 'retention.ms', value: '1234567' }] }] })
    await wait('set', async () => {
      const d = await a.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: NAME, configNames: ['retention.ms'] }] })
      return d.resources[0].configEntries[0].configValue === '1234567'
    })
  },
  async groups (a) {
    await fill()
    const seen = []
    const m = await member(seen)
    await wait('all is read', () => seen.length === GROUP_RECORDS)
    const d = (await a.describeGroups([NAME])).groups[0]
    assert.strictEqual(d.state, 'Stable')
    assert.strictEqual(d.members.length, 1)
    assert((await a.listGroups()).groups.some(g => g.groupId === NAME), 'listed')
    await m.end()
    const offsets = async () => (await a.fetchOffsets({ groupId: NAME, topics: [NAME] }))[0].partitions
    assert.strictEqual((await offsets()).reduce((s, p) => s + Number(p.offset), 0), GROUP_RECORDS)
    await a.setOffsets({ groupId: NAME, topic: NAME, partitions: [{ partition: 1, offset: '5' }] })
    assert.strictEqual((await offsets()).find(p => p.partition === 1).offset, '5')
    await a.resetOffsets({ groupId: NAME, topic: NAME, earliest: true })
    await a.deleteGroups([NAME])
  },
  async records (a) {
    await produce(samples())
    await a.fetchTopicMetadata({ topics: [NAME] }) // deleteTopicRecords does not load it
    await a.deleteTopicRecords({ topic: NAME, partitions: [{ partition: 0, offset: '100' }] })
    assert.strictEqual((await a.fetchTopicOffsets(NAME)).find(p => p.partition === 0).low, '100')
  },
  async cluster (a) {
    const d = await a.describeCluster()
    assert.strictEqual(d.brokers.length, 1)
    assert(d.clusterId)
  }
}

async function transaction () {
  const p = kafka.producer({ transactionalId: NAME, maxInFlightRequests: 1, idempotent: true })
  await p.connect()
  for (const [value, end] of [['aborted', 'abort'], ['committed', 'commit']]) {
    const t = await p.transaction()
    await t.send({ topic: NAME, messages: [{ value, partition: 0 }] })
    await t[end]()
  }
  await p.disconnect()
  const got = await read(0, 1)
  assert.strictEqual(got[0].value.toString(), 'committed')
}

main(async name => {
  const [kind, what] = name.split(/-(.*)/)
  if (kind === 'codec') {
    const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }[what]
    return roundTrip(samples(), { compression })
  }
  if (kind === 'acks') return roundTrip(samples(), { acks: what === 'all' ? -1 : Number(what) })
  if (kind === 'admin') {
    const a = kafka.admin()
    await a.connect()
    return admins[what](a)
  }
  return {
    idempotent: () => roundTrip(samples(), { idempotent: true, maxInFlightRequests: 1 }),
    big: () => roundTrip(big()),
    'by-time': byTime,
    'from-middle': fromMiddle,
    'group-resume': resume,
    'group-two': two,
    transaction
  }[name]()
})
