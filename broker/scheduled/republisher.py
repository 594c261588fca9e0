"""A message that has waited, as it is stored for the queue that it was meant for."""

from __future__ import annotations

from collections.abc import Callable

from broker.group_commit.pending_batch import QueueMessages
from broker.scheduled.system_properties import REAL_QUEUE_ID, REAL_TOPIC, with_properties
from broker.topics_and_groups import TopicConfig
from store.message.properties import find_property
from store.message.record import MessageRecord, make_pending_message
from store.message.scheduled_topics import TIMER_TOPIC


def republish(
    record: MessageRecord, topic_of: Callable[[str], TopicConfig | None]
) -> QueueMessages | None:
    """The message of ``record`` for its own queue; None where its topic is no more.

    It keeps its properties, as with RocketMQ 4.9: ``DELAY`` and ``REAL_TOPIC`` among them; a timed
    message loses the latter, as with RocketMQ 5. A queue that a topic has lost since is replaced
    by one that it has.
    """
    topic = (find_property(record.properties, REAL_TOPIC) or b"").decode(errors="replace")
    config = topic_of(topic)
    if config is None:
        return None
    given = find_property(record.properties, REAL_QUEUE_ID) or b""
    queue_id = int(given) if given.isdigit() else 0
    if queue_id >= max(config.read_queues, config.write_queues):
        queue_id %= config.write_queues
    properties = record.properties
    if record.topic == TIMER_TOPIC:
        properties = with_properties(properties, {REAL_TOPIC: None, REAL_QUEUE_ID: None})
    message = make_pending_message(
        topic,
        record.body,
        properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
    )
    return QueueMessages(topic, queue_id, (message,))
