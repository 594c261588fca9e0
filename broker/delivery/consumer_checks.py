"""What a group may read: one rule for pulls and for POP, in one order.

First the topic, then its queue, then the group. A missing group is created after all checks of a
request, so a refused one leaves no group behind.
"""

from __future__ import annotations

from broker.errors import ForbiddenError, unknown_topic
from broker.topics_and_groups import (
    GroupConfig,
    TopicConfig,
    check_group_name,
    check_queue_to_read,
)


def check_readable(name: str, topic: TopicConfig | None, queue_id: int | None) -> TopicConfig:
    """The topic of that name, if it may be read; ``queue_id`` None: any queue.

    Raises :class:`~broker.errors.UnknownTopicError`, :class:`~broker.errors.ForbiddenError` and
    :class:`~broker.errors.UnknownQueueError`.
    """
    if topic is None:
        raise unknown_topic(name)
    if not topic.readable:
        raise ForbiddenError(f"the topic {name} is not readable")
    if queue_id is not None:
        check_queue_to_read(topic, queue_id)
    return topic


def check_may_consume(name: str, group: GroupConfig | None) -> None:
    """``group``: None if it does not exist, but could.

    Raises :class:`~broker.errors.ForbiddenError` and
    :class:`~broker.topics_and_groups.NameRefusedError`.
    """
    if group is None:
        check_group_name(name)
    elif not group.consume_enable:
        raise ForbiddenError(f"the group {name} is not allowed to consume")
