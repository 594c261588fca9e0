"""Republishes messages: scheduled messages, committed half messages, and retries.

Such a message is first stored in a system topic. Two properties name its real topic and queue:
``REAL_TOPIC`` and ``REAL_QID``. The copy is made from a stored message, so no limit of producers
applies to it, and it is not taken for a retry of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.group_commit.pending_batch import QueueMessages
from broker.scheduled.system_properties import REAL_QUEUE_ID, REAL_TOPIC, with_properties
from broker.topics_and_groups import HALF_TOPIC, TopicConfig
from store.errors import EntryTooLargeError
from store.message.properties import find_property
from store.message.record import MessageRecord, PendingMessage, make_pending_message
from store.message.scheduled_topics import SCHEDULED_TOPICS

REPUBLISHED_TOPICS = SCHEDULED_TOPICS | {HALF_TOPIC}
"""Topics of messages that are republished later."""

QUEUE_DIGITS_MAX = 10
"""Format: the id of a queue is an i32."""

REPUBLISH_OVERHEAD_BYTES = 1024
"""The most bytes that an entry has besides a republished message, with a longer topic."""


def check_republished_size(message: PendingMessage, size_max: int) -> None:
    """Refuses a message for one of ``REPUBLISHED_TOPICS`` that could be stored now, but not
    republished.

    ``size_max``: the most bytes of an entry. Raises :class:`~store.errors.EntryTooLargeError`.
    """
    size = message.size + REPUBLISH_OVERHEAD_BYTES
    if size > size_max:
        raise EntryTooLargeError(size, size_max)


def real_queue_properties(topic: str, queue_id: int) -> dict[bytes, bytes | None]:
    """The properties that name the real queue of a message."""
    return {REAL_TOPIC: topic.encode(), REAL_QUEUE_ID: b"%d" % queue_id}


def real_queue(properties: bytes) -> tuple[str, int]:
    """The real topic and queue of a message; an empty topic, and queue 0, if it has none."""
    topic = (find_property(properties, REAL_TOPIC) or b"").decode(errors="replace")
    queue_id = find_property(properties, REAL_QUEUE_ID) or b""
    is_one = queue_id.isdigit() and len(queue_id) <= QUEUE_DIGITS_MAX
    return topic, int(queue_id) if is_one else 0


def republished(
    record: MessageRecord,
    topic: str,
    queue_id: int,
    properties: bytes,
    *,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    prepared_position: int = 0,
) -> QueueMessages:
    """The message of ``record`` for another queue. None: the field stays."""
    message = make_pending_message(
        topic,
        record.body,
        properties,
        flag=record.flag,
        sys_flag=record.sys_flag if sys_flag is None else sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_position=prepared_position,
    )
    return QueueMessages(topic, queue_id, (message,))


def republished_to_real_queue(
    record: MessageRecord,
    topic_of: Callable[[str], TopicConfig | None],
    without: Iterable[bytes] = (),
    *,
    sys_flag: int | None = None,
    prepared_position: int = 0,
) -> QueueMessages | None:
    """The message for its real queue, or None if the topic was deleted.

    The properties ``without`` are removed. If the topic no longer has the queue, another queue is
    used.
    """
    topic, queue_id = real_queue(record.properties)
    config = topic_of(topic)
    if config is None:
        return None
    if queue_id >= config.queues:
        queue_id %= config.write_queues
    removed = dict.fromkeys(without)
    return republished(
        record,
        topic,
        queue_id,
        with_properties(record.properties, removed) if removed else record.properties,
        sys_flag=sys_flag,
        prepared_position=prepared_position,
    )
