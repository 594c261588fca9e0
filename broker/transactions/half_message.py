"""Half messages: their placement, the message that a commit publishes, and the body of a
check-back.

A half message is stored in ``RMQ_SYS_TRANS_HALF_TOPIC``, queue 0. Its properties name its real
topic and queue. A commit publishes the same as in RocketMQ: without these properties and without
``TRAN_MSG``, with *commit* in the system flag, and with the position of the half message as the
prepared position.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import IllegalMessageError, UnknownTopicError
from broker.group_commit.pending_batch import QueueMessages
from broker.limits import CLIENTS
from broker.scheduled.placement import Placement, deliver_time
from broker.scheduled.republisher import (
    real_queue,
    real_queue_properties,
    republished_to_real_queue,
)
from broker.scheduled.system_properties import REAL_QUEUE_ID, REAL_TOPIC, with_properties
from broker.state.open_transactions import PRODUCER_GROUP
from broker.topics_and_groups import HALF_TOPIC, TopicConfig
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import (
    HEAD,
    RECORD_MAGIC,
    MessageRecord,
    record_size,
)

TRANSACTION = b"TRAN_MSG"
CHECK_TIMES = b"TRANSACTION_CHECK_TIMES"

SYS_FLAG_OUTCOME = 0xC
"""The bits of RocketMQ's outcomes: 4 is a half message, 8 a commit, and 12 a rollback."""

SYS_FLAG_COMMIT = 0x8


def half_message_placement(topic: str, queue_id: int, properties: bytes, now_ms: int) -> Placement:
    """The placement of the half message for a queue.

    Raises :class:`~broker.errors.IllegalMessageError` if it does not name its producer group, or by
    more characters than a heartbeat may. It is raised also if the message must still wait for a
    time at ``now_ms``: a commit publishes it at once.
    """
    group = (find_property(properties, PRODUCER_GROUP) or b"").decode(errors="replace")
    if not group:
        raise IllegalMessageError(
            "a message of a transaction needs its producer group in the property PGROUP"
        )
    if len(group) > CLIENTS.name_size_max:
        raise IllegalMessageError(
            f"the producer group has {len(group)} characters, "
            f"at most {CLIENTS.name_size_max} are allowed"
        )
    if deliver_time(properties, now_ms) > now_ms:
        raise IllegalMessageError("a message of a transaction cannot have a delivery time")
    added = real_queue_properties(topic, queue_id)
    return Placement(HALF_TOPIC, 0, with_properties(properties, added))


def committed_message(
    record: MessageRecord, topic_of: Callable[[str], TopicConfig | None]
) -> QueueMessages:
    """The message that a commit publishes. A delay level is ignored, as RocketMQ does.

    Raises :class:`~broker.errors.UnknownTopicError` if its topic was deleted.
    """
    message = republished_to_real_queue(
        record,
        topic_of,
        without=(REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION),
        sys_flag=record.sys_flag & ~SYS_FLAG_OUTCOME | SYS_FLAG_COMMIT,
        prepared_position=record.position,
    )
    if message is None:
        topic, _queue_id = real_queue(record.properties)
        raise UnknownTopicError(f"topic[{topic}] not exist: it was deleted during the transaction")
    return message


def is_named(record: MessageRecord, message_id: str) -> bool:
    """Whether a client's ``message_id`` may name this half message; an empty one names any."""
    unique = (find_property(record.properties, UNIQUE_KEY) or b"").decode(errors="replace")
    return message_id in {"", unique, record.offset_message_id}


def check_request(record: MessageRecord, checks: int) -> tuple[dict[str, str], bytes]:
    """The fields and the body of a check-back (39).

    The body is the record as consumers would see it, with its real topic and queue. The number of
    check-backs is left out if the properties have no room for it.
    """
    unique = (find_property(record.properties, UNIQUE_KEY) or b"").decode(errors="replace")
    message_id = record.offset_message_id
    ext = {
        "tranStateTableOffset": str(record.queue_offset),
        "commitLogOffset": str(record.position),
        "msgId": unique or message_id,
        "transactionId": unique or message_id,
        "offsetMsgId": message_id,
    }
    topic, queue_id = real_queue(record.properties)
    try:
        properties = with_properties(record.properties, {CHECK_TIMES: b"%d" % checks})
    except IllegalMessageError:
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
