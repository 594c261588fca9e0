"""The fate of a message that a consumer could not consume (RocketMQ's section 10.3).

It returns to ``%RETRY%group`` after a delay that grows with each attempt. After the last attempt it
goes to ``%DLQ%group``, which nobody consumes by default.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.errors import ForbiddenError, UnknownGroupError
from broker.limits import STATE
from broker.scheduled.placement import Placement, delay_level_placement
from broker.scheduled.system_properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    with_properties,
)
from broker.state.commands import PutTopic
from broker.topics_and_groups import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TOPIC_SIZE_MAX,
    GroupConfig,
    NameRefusedError,
    TopicConfig,
    dead_letter_topic,
    retry_topic,
)
from store.message.properties import find_property
from store.message.record import MessageRecord
from store.message.scheduled_topics import LEVEL_MAX

FIRST_RETRY_LEVEL = 3
"""10 s; each further attempt waits one level more."""


def retrying_group(name: str, group_of: Callable[[str], GroupConfig | None]) -> GroupConfig:
    """The group that tries messages again. Raises :class:`~broker.errors.UnknownGroupError`."""
    group = group_of(name)
    if group is None:
        raise UnknownGroupError(f"subscription group not exist, {name}")
    return group


def retries_exhausted(
    group: GroupConfig, reconsume_times: int, times_max: int, delay_level: int = 0
) -> bool:
    """Whether that many attempts were the last; a level below 0 asks for no further one.

    ``times_max``: the attempts that the client allows, below 0 as many as the group does.
    """
    if times_max < 0:
        times_max = group.retry_max_times
    return reconsume_times >= times_max or delay_level < 0


def group_that_gives_up(
    topic: str,
    reconsume_times: int,
    times_max: int,
    group_of: Callable[[str], GroupConfig | None],
) -> GroupConfig | None:
    """The group that has tried this message often enough, if it is sent to a retry topic.

    A client does that by itself if its request to send a message back has failed. Raises
    :class:`~broker.errors.UnknownGroupError`.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    group = retrying_group(topic.removeprefix(RETRY_PREFIX), group_of)
    return group if retries_exhausted(group, reconsume_times, times_max) else None


def retry_message(
    record: MessageRecord, group: GroupConfig, delay_level: int, times_max: int, rng: Random
) -> tuple[str, Placement]:
    """The real topic of the copy of a message that came back, and the place where it is stored.

    ``delay_level`` 0 leaves the delay to the broker.
    """
    marks: dict[bytes, bytes | None] = {}
    if find_property(record.properties, RETRY_TOPIC) is None:
        marks[RETRY_TOPIC] = record.topic.encode()
    if not (find_property(record.properties, ORIGIN_MESSAGE_ID) or b"").strip():
        host = record.store_host.hex().upper()
        marks[ORIGIN_MESSAGE_ID] = f"{host}{record.position:016X}".encode()
    if retries_exhausted(group, record.reconsume_times, times_max, delay_level):
        return dead_letter(group, with_properties(record.properties, marks))
    level = delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
    level = max(1, min(level, LEVEL_MAX))  # clients tell of any number of attempts
    properties = with_properties(record.properties, marks)
    queue_id = rng.randrange(min(group.retry_queues, STATE.retry_queues_max))
    topic = retry_topic(group.name)
    return topic, delay_level_placement(topic, queue_id, properties, level)


def dead_letter(group: GroupConfig, properties: bytes) -> tuple[str, Placement]:
    """The same for a message that is not tried again."""
    topic = dead_letter_topic(group.name)
    return topic, Placement(topic, 0, with_properties(properties, {DELAY: b"0"}))


def missing_retry_topics(
    group: GroupConfig, topic: str, topic_of: Callable[[str], TopicConfig | None], now_ms: int
) -> list[PutTopic]:
    """Creates the topic to which a message returns, if it is missing.

    Raises :class:`~broker.errors.ForbiddenError` if nobody may write to it, and
    :class:`~broker.topics_and_groups.NameRefusedError` if no topic can have that name.
    """
    found = topic_of(topic)
    if found is None:
        if len(topic) > TOPIC_SIZE_MAX:
            raise NameRefusedError(
                f"the topic name {topic} has {len(topic)} characters, "
                f"at most {TOPIC_SIZE_MAX} are allowed"
            )
        queues = 1 if topic.startswith(DLQ_PREFIX) else group.retry_queues
        queues = min(queues, STATE.retry_queues_max)  # older states have groups with more
        return [PutTopic.of(TopicConfig(topic, queues, queues), now_ms)]
    if not found.writable:
        raise ForbiddenError(f"the topic[{topic}] sending message is forbidden")
    return []
