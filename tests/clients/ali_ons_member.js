'use strict';

// The Node client ali-ons, unchanged, as a member of a group that stays until its input ends.
//
//   node ali_ons_member.js NAMESRV TOPIC GROUP [OPTIONS]
//       prints {queues: [...]} whenever its share of the topic's queues has changed, and of each
//       message {n, queue_id, queue_offset, size}; OPTIONS is JSON: `filter` (what to subscribe to:
//       text for tags, or {expressionType, subString}), `broadcast`, `from` (where a new group begins)
//       and `time` (yyyyMMddHHmmss, local time)
//
// It asks for routes and members, and says that it lives, far more often than it would by default.

const { Consumer } = require('ali-ons');
const leave = require('./goodbye');

const logger = { info() {}, debug() {}, warn() {}, error() {} };
const httpclient = { request() { throw new Error('no HTTP server is asked here'); } };

const print = value => process.stdout.write(`${JSON.stringify(value)}\n`);
// What a pipe has no room for yet is not printed by a process that exits.
const exit = code => process.stdout.write('', () => process.exit(code));

const [ nameSrv, topic, consumerGroup, text ] = process.argv.slice(2);
const { filter = '*', broadcast = false, from = 'CONSUME_FROM_FIRST_OFFSET', time } = JSON.parse(text || '{}');

const consumer = new Consumer({
  httpclient,
  logger,
  nameSrv,
  consumerGroup,
  consumeFromWhere: from,
  ...(time && { consumeTimestamp: time }),
  isBroadcast: broadcast,
  pollNameServerInteval: 200,
  heartbeatBrokerInterval: 300,
  rebalanceInterval: 300,
  persistConsumerOffsetInterval: 300,
  pullTimeDelayMillsWhenException: 200,
});
consumer.on('error', () => {});
consumer.subscribe(topic, filter, async msg => {
  const body = msg.body.toString();
  print({ n: Number(body.split(' ', 1)[0]), queue_id: msg.queueId, queue_offset: Number(msg.queueOffset), size: body.length });
});

let known = '';
setInterval(() => {
  const queues = Array.from(consumer.processQueueTable.values())
    .map(({ messageQueue }) => messageQueue)
    .filter(queue => queue.topic === topic)
    .map(queue => queue.queueId)
    .sort((a, b) => a - b);
  if (JSON.stringify(queues) !== known) {
    known = JSON.stringify(queues);
    print({ queues });
  }
}, 50);

process.stdin.resume();
process.stdin.on('end', () => leave(consumer).then(() => exit(0), err => {
  process.stderr.write(`${err.stack}\n`);
  process.exit(1);
}));
