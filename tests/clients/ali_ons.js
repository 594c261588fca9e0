'use strict';

// The Node client ali-ons, unchanged, as a producer or a consumer that prints one JSON line a message.
//
//   node ali_ons.js produce NAMESRV TOPIC COUNT [SECONDS]
//       sends the numbers 0 to COUNT - 1, each again and again until it is acknowledged, and prints
//       {n, queue_id, queue_offset, msg_id, sent, acked, attempts}: `sent` and `acked` count events,
//       so that acked < sent says that one message was stored before the other was sent
//   node ali_ons.js consume NAMESRV TOPIC GROUP COUNT [SECONDS]
//       prints {n, queue_id, queue_offset, msg_id} as they come, until COUNT different numbers came
//   node ali_ons.js produce-delayed NAMESRV TOPIC COUNT LEVEL DELAY_MS
//       sends even numbers with a delay level and odd ones with a delay, and prints {n, sent_ms, acked_ms, attempts}
//   node ali_ons.js consume-failing NAMESRV TOPIC GROUP COUNT FAILURES
//       fails at the numbers below FAILURES when they come first, and prints {n, again, queue_id,
//       queue_offset, stored_ms, reconsume_times, failed} until COUNT numbers were consumed
//   node ali_ons.js load NAMESRV TOPIC NAME
//       sends NAME-0, NAME-1 and so on until its input ends, with the settings that the client comes with,
//       and prints {body, queue_offset}, or {body, refused} for one that the client gave up
//
// With ACCESS_KEY and SECRET_KEY in the environment it signs what it sends.
// Exits 3 if that takes longer than SECONDS.

const { Consumer, Message, Producer } = require('ali-ons');
const leave = require('./goodbye');

const IN_FLIGHT = 16;
const RETRY_MS = 50;
const ROUTE_POLL_MS = 200; // the client's default of 30 s would be how long a failover lasts for it

// Connections that break while a leader is killed are what the tests are about.
const logger = { info() {}, debug() {}, warn() {}, error() {} };
const httpclient = { request() { throw new Error('no HTTP server is asked here'); } };

const print = value => process.stdout.write(`${JSON.stringify(value)}\n`);
// What a pipe has no room for yet is not printed by a process that exits.
const exit = code => process.stdout.write('', () => process.exit(code));
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

function options(nameSrv, more) {
  const { ACCESS_KEY: accessKey, SECRET_KEY: secretKey } = process.env;
  const keys = accessKey ? { accessKey, secretKey, accessKeyId: accessKey, accessKeySecret: secretKey } : {};
  return { httpclient, logger, nameSrv: nameSrv.split(';'), pollNameServerInteval: ROUTE_POLL_MS, ...keys, ...more };
}

async function produceDelayed(nameSrv, topic, count, level, delayMs) {
  const producer = new Producer(options(nameSrv, { producerGroup: 'node_delayers' }));
  producer.on('error', () => {});
  await producer.ready();
  let next = 0;

  async function acknowledged(n) {
    for (let attempts = 1; ; attempts++) {
      const message = new Message(topic, 'node', `${n}`);
      if (n % 2) message.properties.TIMER_DELAY_MS = delayMs;
      else message.delayTimeLevel = level;
      const sentMs = Date.now();
      try {
        await producer.send(message);
        return { n, sent_ms: sentMs, acked_ms: Date.now(), attempts };
      } catch (err) {
        await sleep(RETRY_MS);
      }
    }
  }

  async function worker() {
    while (next < count) print(await acknowledged(next++));
  }

  await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
}

async function consumeFailing(nameSrv, topic, consumerGroup, count, failures) {
  const consumer = new Consumer(options(nameSrv, {
    consumerGroup,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    pullThresholdForQueue: count,
  }));
  consumer.on('error', () => {});
  const seen = new Set();
  await new Promise(resolve => {
    consumer.subscribe(topic, '*', async (msg, queue) => { // no queue where it comes again
      const n = Number(msg.body.toString());
      const failed = n < failures && msg.reconsumeTimes === 0;
      print({
        n,
        again: queue === undefined,
        queue_id: msg.queueId,
        queue_offset: Number(msg.queueOffset),
        stored_ms: Number(msg.storeTimestamp),
        reconsume_times: msg.reconsumeTimes,
        failed,
      });
      if (failed) return Consumer.ACTION_RETRY;
      seen.add(n);
      if (seen.size === count) resolve();
    });
  });
  await leave(consumer);
}

async function load(nameSrv, topic, name) {
  const { pollNameServerInteval: _, ...own } = options(nameSrv, { producerGroup: 'node_load' });
  const producer = new Producer(own);
  producer.on('error', () => {});
  await producer.ready();
  let next = 0;
  let ended = false;
  process.stdin.resume();
  process.stdin.on('end', () => { ended = true; });

  async function worker() {
    while (!ended) {
      const body = `${name}-${next++}`;
      try {
        const { queueOffset } = await producer.send(new Message(topic, 'node', body));
        print({ body, queue_offset: Number(queueOffset) });
      } catch (err) {
        print({ body, refused: err.message });
        await sleep(RETRY_MS);
      }
    }
  }

  await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
}

async function produce(nameSrv, topic, count) {
  const producer = new Producer(options(nameSrv, { producerGroup: 'node_producers' }));
  producer.on('error', () => {});
  await producer.ready();
  let next = 0;
  let events = 0;

  async function acknowledged(n) {
    for (let attempts = 1; ; attempts++) {
      const sent = events++;
      try {
        const { msgId, messageQueue, queueOffset } = await producer.send(new Message(topic, 'node', `${n}`));
        return {
          n,
          queue_id: Number(messageQueue.queueId),
          queue_offset: Number(queueOffset),
          msg_id: msgId,
          sent,
          acked: events++,
          attempts,
        };
      } catch (err) {
        await sleep(RETRY_MS);
      }
    }
  }

  async function worker() {
    while (next < count) print(await acknowledged(next++));
  }

  await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
}

async function consume(nameSrv, topic, consumerGroup, count) {
  const consumer = new Consumer(options(nameSrv, {
    consumerGroup,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    pullThresholdForQueue: count, // above it the client pauses for five seconds
  }));
  consumer.on('error', () => {});
  const seen = new Set();
  await new Promise(resolve => {
    consumer.subscribe(topic, '*', async msg => {
      const n = Number(msg.body.toString());
      print({ n, queue_id: msg.queueId, queue_offset: Number(msg.queueOffset), msg_id: msg.msgId });
      seen.add(n);
      if (seen.size === count) resolve();
    });
  });
  await leave(consumer);
}

async function main([ action, nameSrv, topic, ...rest ]) {
  const place = { produce: 1, consume: 2 }[action];
  if (action === 'load') {
    await load(nameSrv, topic, rest[0]);
    return;
  }
  const seconds = Number(rest[place] || 120);
  setTimeout(() => {
    process.stderr.write(`not done after ${seconds} s\n`);
    process.exit(3);
  }, seconds * 1000).unref();
  if (action === 'produce') {
    await produce(nameSrv, topic, Number(rest[0]));
  } else if (action === 'produce-delayed') {
    await produceDelayed(nameSrv, topic, Number(rest[0]), Number(rest[1]), Number(rest[2]));
  } else if (action === 'consume-failing') {
    await consumeFailing(nameSrv, topic, rest[0], Number(rest[1]), Number(rest[2]));
  } else {
    await consume(nameSrv, topic, rest[0], Number(rest[1]));
  }
}

main(process.argv.slice(2)).then(() => exit(0), err => {
  process.stderr.write(`${err.stack}\n`);
  process.exit(1);
});
