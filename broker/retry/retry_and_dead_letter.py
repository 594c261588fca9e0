"""Retries and dead letters of messages that a consumer could not consume (section 10.3).

Such a message goes to ``%RETRY%group`` after a delay that grows with each attempt. After the last
attempt it goes to ``%DLQ%group``, which nobody consumes by default.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.errors import ForbiddenError, IllegalMessageError, UnknownGroupError
from broker.limits import STATE
from broker.retry.attempts import retries_exhausted
from broker.scheduled.placement import Placement, delay_level_placement
from broker.scheduled.system_properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    with_properties_that_fit,
)
from broker.state.commands import PutTopic
from broker.topics_and_groups import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TOPIC_SIZE_MAX,
    GroupConfig,
    IllegalTopicNameError,
    TopicConfig,
    dead_letter_topic,
    retry_topic,
)
from store.message.properties import find_property
from store.message.record import MessageRecord
from store.message.scheduled_topics import LEVEL_MAX

FIRST_RETRY_LEVEL = 3
"""The delay level of the first retry: 10 s. Each further attempt has one level more."""


def retrying_group(name: str, group_of: Callable[[str], GroupConfig | None]) -> GroupConfig:
    """The settings of the group that retries messages. Raises
    :class:`~broker.errors.UnknownGroupError`."""
    group = group_of(name)
    if group is None:
        raise UnknownGroupError(f"subscription group not exist, {name}")
    return group


def group_that_gives_up(
    topic: str,
    reconsume_times: int,
    times_max: int,
    group_of: Callable[[str], GroupConfig | None],
) -> GroupConfig | None:
    """The group whose attempts are exhausted, for a message to its retry topic; otherwise None.

    A client sends such a message itself if its send-back request has failed, or if it consumes in
    order. RocketMQ 4 takes the attempts that it tells for those before the last one. No consumer
    has failed at a message without attempts: an operator sends it. Raises
    :class:`~broker.errors.UnknownGroupError`.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    group = retrying_group(topic.removeprefix(RETRY_PREFIX), group_of)
    failed = reconsume_times > 0
    return group if failed and retries_exhausted(group, reconsume_times + 1, times_max) else None


def retry_message(
    record: MessageRecord, group: GroupConfig, failures: int, delay_level: int, rng: Random
) -> tuple[str, Placement]:
    """The topic of a retry after so many failed attempts, at least one, and its placement.

    ``delay_level`` 0 leaves the delay to the broker. The properties of the message may leave no
    room for what the broker adds: then the retry comes without a delay, and does not name its
    origin.
    """
    level = min(delay_level or FIRST_RETRY_LEVEL + failures - 1, LEVEL_MAX)
    queue_id = rng.randrange(min(group.retry_queues, STATE.retry_queues_max))
    topic = retry_topic(group.name)
    try:
        place = delay_level_placement(topic, queue_id, record.properties, level)
    except IllegalMessageError:
        place = Placement(topic, queue_id, record.properties)
    named = with_properties_that_fit(place.properties, _origin_properties(record))
    return topic, place._replace(properties=named)


def dead_letter_of(record: MessageRecord, group: GroupConfig) -> tuple[str, Placement]:
    """The same for a message that becomes a dead letter."""
    named = with_properties_that_fit(record.properties, _origin_properties(record))
    return dead_letter(group, named)


def _origin_properties(record: MessageRecord) -> dict[bytes, bytes | None]:
    """The properties that tell where a copy comes from; those that it has already stay."""
    added: dict[bytes, bytes | None] = {}
    if find_property(record.properties, RETRY_TOPIC) is None:
        added[RETRY_TOPIC] = record.topic.encode()
    if not (find_property(record.properties, ORIGIN_MESSAGE_ID) or b"").strip():
        host = record.store_host.hex().upper()
        added[ORIGIN_MESSAGE_ID] = f"{host}{record.position:016X}".encode()
    return added


def dead_letter(group: GroupConfig, properties: bytes) -> tuple[str, Placement]:
    """The same for a message with these properties."""
    topic = dead_letter_topic(group.name)
    return topic, Placement(topic, 0, with_properties_that_fit(properties, {DELAY: b"0"}))


def missing_retry_topics(
    group: GroupConfig, topic: str, topic_of: Callable[[str], TopicConfig | None], now_ms: int
) -> list[PutTopic]:
    """The commands that create a missing retry or dead letter topic.

    Raises :class:`~broker.errors.ForbiddenError` if the topic is not writable, and
    :class:`~broker.topics_and_groups.IllegalTopicNameError` if the name is not allowed.
    """
    found = topic_of(topic)
    if found is None:
        if len(topic) > TOPIC_SIZE_MAX:
            raise IllegalTopicNameError(
                f"the topic name {topic} has {len(topic)} characters, "
                f"at most {TOPIC_SIZE_MAX} are allowed"
            )
        queues = 1 if topic.startswith(DLQ_PREFIX) else group.retry_queues
        queues = min(queues, STATE.retry_queues_max)  # older states have groups with more
        return [PutTopic.of(TopicConfig(topic, queues, queues), now_ms)]
    if not found.writable:
        raise ForbiddenError(f"the topic[{topic}] sending message is forbidden")
    return []
