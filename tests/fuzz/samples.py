"""Right inputs, for decoders for which random bytes are seldom right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack

from broker.state.broker_state import BrokerState
from broker.state.commands import (
    CheckTransaction,
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    EndTransaction,
    Expire,
    PutAccess,
    PutGroup,
    PutSetting,
    PutTopic,
    PutTopicRetention,
    Recall,
    Schedule,
    Timer,
    Trim,
    encode_commands,
)
from broker.topics_and_groups import GroupConfig, TopicConfig
from dledger.raft.configuration import Configuration, MemberAddress
from dledger.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.replication_evidence import MemberEvidence
from dledger.wire.codec import CRC, MessageEncoder
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    HealthReport,
    SnapshotNeededNotice,
)
from dledger.wire.transport import Message
from store.log.entry import EntryKind, build_entry
from tests.linear.feeding import batch_body, batched, records

ENTRY = build_entry(EntryKind.DATA, 5, 3, 4000, 12345, (batch_body([b"one", b"two"]),))
MEMBER = MemberAddress("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
CONFIGURATION = Configuration(voters=("n0", "n1"), learners=("n2",), addresses={"n0": MEMBER})

PEER_MESSAGES: Sequence[Message] = (
    VoteRequest(3, 10, 2, pre_vote=True),
    VoteRequest(3, 10, 2, pre_vote=False, ordered=True),
    VoteResponse(3, granted=True, pre_vote=False),
    AppendRequest(3, 4, 3, 4, (ENTRY,)),
    AppendRequest(3, 4, 3, 4, ()),
    AppendAccepted(3, 10, 12345),
    AppendRejected(3, 10, 9, 2),
    Heartbeat(3, 9, 7, (MemberEvidence("n1", 12345, 9),)),
    HeartbeatResponse(3, 9, 10, 7, 1, 9),
    TimeoutNow(3),
    ReadRequest(3, 1),
    ReadResponse(3, 1, 9),
    HealthReport(room=True, prompt=True, whole=True),
    SnapshotNeededNotice(9),
    FetchRequest(1, 0, 9, 1 << 20),
    CheckpointRequest(2, -1, 0),
    CheckpointResponse(1, 9, 0, 0, 9, 0, b"piece"),
)

COMMANDS: Sequence[Command] = (
    PutTopic.of(TopicConfig("orders", 4, 4), 1_700_000_000_000),
    PutGroup.of(GroupConfig("readers"), 1_700_000_000_000),
    CommitOffset("readers", "orders", 0, 17),
    Expire(4000),
    DeleteGroup("readers", True, 1_700_000_000_000),
    Schedule(3, 17),
    Timer(1_700_000_000_000, 3, 1),
    Recall(1_700_000_000_001, 4),
    EndTransaction(1, 4000),
    CheckTransaction(1, 4000, 1_700_000_000_000),
    PutSetting("fileReservedTime", "48"),
    PutAccess("someone", b""),
    PutTopicRetention("orders", 3_600_000, 1_700_000_000_000),
    Trim("orders", 0, 17),
    DeleteTopic("orders", 1_700_000_000_000),
)


def peer_fields(message: Message) -> bytes:
    """The message as the codec packs it, without its checksum."""
    return b"".join(map(bytes, MessageEncoder().encode(message)))[CRC.size :]


def state() -> bytes:
    """The state of a broker with a topic, a group and an offset."""
    broker = BrokerState()
    for command in COMMANDS[:3]:
        broker.apply(command)
    return broker.to_bytes()


PROPERTIES = (
    b"KEYS\x01a b\x02TAGS\x01red\x02UNIQ_KEY\x017F0000010000000000000000000000AB\x02",
    b"DELAY\x013\x02WAIT\x01true\x02",
    b"TIMER_DELIVER_MS\x011700000000000\x02",
    b"TRAN_MSG\x01true\x02PGROUP\x01payers\x02",
)
HEARTBEAT = (
    b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
    b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","unitMode":false,"subscriptionDataSet":[{"topic":"t",'
    b'"subString":"a || b","subVersion":1,"tagsSet":["a"],"codeSet":[97],'
    b'"expressionType":"TAG"}]}]}'
)
SQL = (
    b"a = 1 AND b <> 'x' OR NOT (c BETWEEN 1 AND 2)",
    b"a IN ('x', 'y') AND b IS NOT NULL AND c CONTAINS 'z'",
    b"TRUE AND a >= -1.5e3 OR a NOT STARTSWITH 'q'",
)
GROUP = (
    b'{"groupName":"g","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,'
    b'"consumeBroadcastEnable":true,"whichBrokerWhenConsumeSlowly":1}'
)
TOPICS = (
    b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":2},'
    b'"topicConfigTable":{"t":{"topicName":"t","readQueueNums":4,"writeQueueNums":4,"perm":6,'
    b'"topicFilterType":"SINGLE_TAG","topicSysFlag":0,"order":false}}},"filterServerList":[]}'
)
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"b","cluster":"c"}],'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
)
LOCKS = b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}'
NODE = (
    b'group = "broker-a"\nnode = "n0"\ndata = "data"\nnamesrv = ["127.0.0.1:9876"]\n\n'
    b'[members.n0]\naddress = "127.0.0.1:1"\nhttp = "127.0.0.1:2"\npeer = "127.0.0.1:3"\n'
)

SAMPLES: Mapping[str, Sequence[bytes]] = {
    "message of a peer": [peer_fields(message) for message in PEER_MESSAGES],
    "commands": [encode_commands(COMMANDS)],
    "state of a broker": [state()],
    "broken entries": [bytes(ENTRY.data)],
    "broken batch": [batch_body([b"one", b"two"], PROPERTIES[0])],
    "broken records": [records([b"one", b"two"], PROPERTIES[0])],
    "configuration": [CONFIGURATION.pack()],
    "properties": PROPERTIES,
    "properties in a batch": PROPERTIES,
    "a pulled message's properties": PROPERTIES,
    "body of a batch": [batched(properties) * 2 for properties in PROPERTIES],
    "filter expression": SQL,
    "heartbeat": [HEARTBEAT],
    "decode_json": [HEARTBEAT, TOPICS, ROUTE],
    "group": [GROUP],
    "table of topics": [TOPICS],
    "route": [ROUTE],
    "locks": [LOCKS],
    "message over HTTP": [
        b'{"body":"a","tags":"t","keys":["k"],"properties":{"a":"b"},"queue_id":0}'
    ],
    "files of settings": [NODE, b'name = "n"\n[security]\npeers = "off"\n'],
    "what replicas say of their states": [msgpack.packb([["n0", 5, {"topics": b"x" * 16}]])],
}
"""By the names of decoders."""
