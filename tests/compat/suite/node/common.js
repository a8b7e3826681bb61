// What the Node.js programs share: sample records, comparison, waiting. A program is called with a case's name;
// COMPAT_BOOTSTRAP and COMPAT_NAME say where and under which names; exit code 0 means that the case passed.
'use strict'
const assert = require('node:assert')
const crypto = require('node:crypto')

const BOOTSTRAP = process.env.COMPAT_BOOTSTRAP
const NAME = process.env.COMPAT_NAME
const GROUP_RECORDS = 4000
const START_MS = Math.floor(Date.now() / 1000) * 1000 - 3600_000 // within retention

// samples are keys, headers, timestamps, a tombstone, empty and null values; all of partition 0.
function samples () {
  const out = [
    { key: 'key', value: 'value', headers: { trace: Buffer.from([0, 1, 2]), note: Buffer.alloc(0) }, ms: START_MS },
    { key: 'gone', value: null, headers: {}, ms: START_MS + 1000 },
    { key: null, value: '', headers: {}, ms: START_MS + 2000 },
    { key: '', value: 'umlaut äöü', headers: {}, ms: START_MS + 3000 }
  ]
  for (let i = 0; i < 2000; i++) {
    out.push({ key: `k${i % 17}`, value: 'xy'.repeat(i % 50 + 7), headers: {}, ms: START_MS + 4000 + i })
  }
  return out
}

const big = () => [{ key: 'big', value: crypto.randomBytes(450 << 10).toString('hex'), headers: {}, ms: START_MS }]

const text = b => b === null || b === undefined ? null : b.toString()

// same compares one record as read with the i-th sample.
function same (i, got, want) {
  assert.strictEqual(Number(got.offset), i, `offset of record ${i}`)
  assert.strictEqual(text(got.key), want.key, `key of ${i}`)
  assert.strictEqual(text(got.value), want.value, `value of ${i}`)
  assert.strictEqual(Number(got.timestamp), want.ms, `timestamp of ${i}`)
  const headers = Object.keys(got.headers ?? {}).length
  assert.strictEqual(headers, Object.keys(want.headers).length, `headers of ${i}`)
  for (const [k, v] of Object.entries(want.headers)) assert.deepStrictEqual(Buffer.from(got.headers[k]), v, `header ${k} of ${i}`)
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function wait (what, ok) {
  const until = Date.now() + 30_000
  while (!await ok()) {
    assert(Date.now() < until, `waited in vain: ${what}`)
    await sleep(50)
  }
}

function main (run) {
  run(process.argv[2]).then(() => process.exit(0), e => {
    console.error(e)
    process.exit(1)
  })
}

module.exports = { assert, BOOTSTRAP, NAME, GROUP_RECORDS, START_MS, samples, big, same, sleep, wait, main }
