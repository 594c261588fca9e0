"""Half messages: where they are stored, what is published of them, and what producers are asked.

A half message lies in ``RMQ_SYS_TRANS_HALF_TOPIC``, queue 0, with the topic and queue that it is
meant for among its properties. What its commit publishes is RocketMQ's: without those and without
``TRAN_MSG``, its system flag saying *commit*, the half message's position as the prepared one.
"""

from __future__ import annotations

from broker.group_commit.pending_batch import QueueMessages
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.scheduled.placement import Placement
from broker.scheduled.system_properties import REAL_QUEUE_ID, REAL_TOPIC, with_properties
from broker.state.open_transactions import PRODUCER_GROUP
from broker.topics_and_groups import HALF_TOPIC, TopicConfig
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import (
    HEAD,
    RECORD_MAGIC,
    MessageRecord,
    make_pending_message,
    record_size,
)

TRANSACTION = b"TRAN_MSG"
CHECK_TIMES = b"TRANSACTION_CHECK_TIMES"

SYS_FLAG_COMMIT = 0x8


def half_message_placement(topic: str, queue_id: int, properties: bytes) -> Placement:
    """Where the half message for a queue is stored.

    Raises :class:`~broker.remoting.protocol.errors.RequestError`, code 13, where it does not say
    whose it is.
    """
    if not find_property(properties, PRODUCER_GROUP):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "a message of a transaction needs its producer group in the property PGROUP",
        )
    marks = {REAL_TOPIC: topic.encode(), REAL_QUEUE_ID: b"%d" % queue_id}
    return Placement(HALF_TOPIC, 0, with_properties(properties, marks))


def real_queue(record: MessageRecord) -> tuple[str, int]:
    """Topic and queue that a half message is meant for."""
    topic = (find_property(record.properties, REAL_TOPIC) or b"").decode(errors="replace")
    queue_id = find_property(record.properties, REAL_QUEUE_ID) or b""
    return topic, int(queue_id) if queue_id.isdigit() else 0


def committed_message(record: MessageRecord, config: TopicConfig) -> QueueMessages:
    """What the commit of a half message stores. A delay level is ignored, as RocketMQ does."""
    topic, queue_id = real_queue(record)
    if queue_id >= max(config.read_queues, config.write_queues):
        queue_id %= config.write_queues
    message = make_pending_message(
        topic,
        record.body,
        with_properties(
            record.properties, {REAL_TOPIC: None, REAL_QUEUE_ID: None, TRANSACTION: None}
        ),
        flag=record.flag,
        sys_flag=record.sys_flag | SYS_FLAG_COMMIT,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
        prepared_position=record.position,
    )
    return QueueMessages(topic, queue_id, (message,))


def offset_message_id(record: MessageRecord) -> str:
    """The id by which the broker's answer has named the half message."""
    return f"{record.store_host.hex().upper()}{record.position:016X}"


def is_named(record: MessageRecord, message_id: str) -> bool:
    """Whether a client may mean this half message by ``message_id``; none names any."""
    unique = (find_property(record.properties, UNIQUE_KEY) or b"").decode(errors="replace")
    return message_id in {"", unique, offset_message_id(record)}


def check_request(record: MessageRecord, checks: int) -> tuple[dict[str, str], bytes]:
    """Fields and body of the request (39) that asks a producer for the outcome.

    The body is the record as its consumers would see it: with its real topic and queue. How often
    it was asked is left out where the properties have no room for that.
    """
    unique = (find_property(record.properties, UNIQUE_KEY) or b"").decode(errors="replace")
    message_id = offset_message_id(record)
    ext = {
        "tranStateTableOffset": str(record.queue_offset),
        "commitLogOffset": str(record.position),
        "msgId": unique or message_id,
        "transactionId": unique or message_id,
        "offsetMsgId": message_id,
    }
    topic, queue_id = real_queue(record)
    try:
        properties = with_properties(record.properties, {CHECK_TIMES: b"%d" % checks})
    except RequestError:
        properties = record.properties
    topic_bytes = topic.encode()
    head = HEAD.pack(
        record_size(topic, len(record.body), len(properties)),
        RECORD_MAGIC,
        record.body_crc,
        queue_id,
        record.flag,
        record.queue_offset,
        record.position,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        record.prepared_position,
        len(record.body),
    )
    tail = len(properties).to_bytes(2, "big") + properties
    return ext, head + record.body + bytes((len(topic_bytes),)) + topic_bytes + tail
