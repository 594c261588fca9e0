"""Topics and subscription groups: their settings, and the names that they may have.

The JSON forms are those of RocketMQ's ``topics.json`` and ``subscriptionGroup.json``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.errors import RefusedError, UnknownQueueError
from store.message.scheduled_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from store.quoting import quoted

PERM_WRITE = 2
PERM_READ = 4
PERM_INHERIT = 1
PERM_MAX = 7
"""Format: the sum of all bits."""

TOPIC_SIZE_MAX = 127
"""Format: a version 1 record has one signed byte for the length."""

GROUP_SIZE_MAX = 255
"""Format: RocketMQ's ``CHARACTER_MAX_LENGTH``."""

AUTO_CREATE_TOPIC = "TBW102"
"""The template of topics that are created by the first message to them."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Where messages of open transactions lie."""

BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"

SYSTEM_TOPICS = (
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    BENCHMARK_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
    HALF_TOPIC,
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
"""Names that no user may create, change or delete, beside those of :func:`system_topics`."""

SYSTEM_PREFIX = "rmq_sys_"
"""The prefix of RocketMQ 5's own topics. No request creates such a topic."""

UNSENDABLE_TOPICS = frozenset(SYSTEM_TOPICS) - {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC}
"""The names of these that nobody may send to either (``TopicValidator.isNotAllowedSendTopic``)."""

MESSAGE_TYPE = "message.type"
RETENTION_MS = "retention.ms"
"""Attributes of topics. RocketMQ knows the first, Kafka the second."""

MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
"""The values of a topic's attribute ``message.type``. The first and the last allow every
message."""

MESSAGE_TYPE_SHIFT = 16
MESSAGE_TYPE_MASK = 7 << MESSAGE_TYPE_SHIFT
"""Format: the bits of the system flag that hold the message type, as its index in
:data:`MESSAGE_TYPES`. RocketMQ uses the bits 0 and 1. So the replicated state needs no further
field, and a NameServer tells the type to clients."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


class NameRefusedError(RefusedError):
    """The name is not allowed for a topic or group."""


class IllegalTopicNameError(NameRefusedError):
    """No topic may have the name."""


class IllegalGroupNameError(NameRefusedError):
    """No group may have the name."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. ``perm`` is a sum of the ``PERM`` bits."""

    name: str
    read_queues: int = 4
    write_queues: int = 4
    perm: int = PERM_READ | PERM_WRITE
    sys_flag: int = 0
    order: bool = False
    retention_ms: int = 0
    """The age up to which consumers get a message; 0: the retention of the log decides."""

    @property
    def queues(self) -> int:
        """The number of queues that are read or written."""
        return max(self.read_queues, self.write_queues)

    @property
    def readable(self) -> bool:
        return self.perm & PERM_READ != 0

    @property
    def writable(self) -> bool:
        return self.perm & PERM_WRITE != 0

    @property
    def message_type(self) -> str:
        """One of :data:`MESSAGE_TYPES`."""
        return message_type_in(self.sys_flag)

    def as_json(self) -> dict[str, object]:
        return {
            **self._attributes(),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    def _attributes(self) -> dict[str, object]:
        """RocketMQ 5's field; absent where the topic has neither message type nor retention."""
        attributes = {}
        if self.sys_flag & MESSAGE_TYPE_MASK:
            attributes[MESSAGE_TYPE] = self.message_type
        if self.retention_ms:
            attributes[RETENTION_MS] = str(self.retention_ms)
        return {"attributes": attributes} if attributes else {}


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One subscription group; defaults are RocketMQ's."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_slow: int = 1
    notify_ids_changed: bool = True

    @property
    def retries_max(self) -> int:
        """How often a message is tried again. A group without retry queues has no retries: what it
        fails at is a dead letter at once."""
        return max(self.retry_max_times, 0) if self.retry_queues > 0 else 0

    def as_json(self) -> dict[str, object]:
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_ids_changed,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queues,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_slow,
        }


AUTO_CREATE_TEMPLATE = TopicConfig(AUTO_CREATE_TOPIC, 8, 8, PERM_READ | PERM_WRITE | PERM_INHERIT)


def message_type_in(sys_flag: int) -> str:
    """The message type that a topic's system flag holds."""
    place = (sys_flag & MESSAGE_TYPE_MASK) >> MESSAGE_TYPE_SHIFT
    return MESSAGE_TYPES[place] if place < len(MESSAGE_TYPES) else MESSAGE_TYPES[0]


def message_type_flag(name: str) -> int:
    """The bits of that type in a system flag. Raises :class:`~broker.errors.RefusedError` for a
    name outside :data:`MESSAGE_TYPES`."""
    if name not in MESSAGE_TYPES:
        raise RefusedError(
            f"there is no message type {quoted(name)}, the types are {', '.join(MESSAGE_TYPES)}"
        )
    return MESSAGE_TYPES.index(name) << MESSAGE_TYPE_SHIFT


def reply_topic(cluster: str) -> str:
    """The topic to which replies are addressed. No message is stored in it."""
    return f"{cluster}_REPLY_TOPIC"


def system_topics(cluster: str, broker_name: str) -> dict[str, TopicConfig]:
    """The topics that each RocketMQ broker creates at its start, with RocketMQ's queue counts. The
    template of automatic topics is not among them.

    Java's ``createTopic`` finds brokers by the topic named like their cluster, or like the broker.
    Topics in ``UNSENDABLE_TOPICS`` are not writable here, because nobody may send to them.
    """
    both = PERM_READ | PERM_WRITE
    topics = (
        TopicConfig(SELF_TEST_TOPIC, 1, 1, PERM_READ),
        TopicConfig(OFFSET_MOVED_TOPIC, 1, 1, PERM_READ),
        TopicConfig(BENCHMARK_TOPIC, 1024, 1024, both),
        TopicConfig(reply_topic(cluster), 1, 1, both),
        TopicConfig(cluster, 16, 16, both | PERM_INHERIT),
        TopicConfig(broker_name, 1, 1, both | PERM_INHERIT),
    )
    return {topic.name: topic for topic in topics}


def retry_topic(group: str) -> str:
    """The topic of messages that a group's consumers sent back."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic of messages that a group's consumers sent back too often."""
    return DLQ_PREFIX + group


def is_reserved(topic: str) -> bool:
    """Whether no request creates a topic of that name."""
    return topic.startswith(SYSTEM_PREFIX)


def check_queue(topic: TopicConfig, queue_id: int) -> None:
    """Raises :class:`~broker.errors.UnknownQueueError` unless the topic has that queue."""
    _check_queue(topic, queue_id, topic.queues, "")


def check_queue_to_read(topic: TopicConfig, queue_id: int) -> None:
    """The same for a queue from which messages are read."""
    _check_queue(topic, queue_id, topic.read_queues, " to read")


def _check_queue(topic: TopicConfig, queue_id: int, queues: int, use: str) -> None:
    if not 0 <= queue_id < queues:
        raise UnknownQueueError(
            f"the topic {topic.name} has no queue {queue_id}{use}, its queues are 0 to {queues - 1}"
        )


def check_topic_name(name: str) -> None:
    """Raises :class:`IllegalTopicNameError` unless a topic may have that name."""
    _check_name("topic", name, TOPIC_SIZE_MAX, IllegalTopicNameError)


def check_group_name(name: str) -> None:
    """Raises :class:`IllegalGroupNameError` unless a group may have that name."""
    _check_name("group", name, GROUP_SIZE_MAX, IllegalGroupNameError)


def _check_name(kind: str, name: str, size_max: int, error: type[NameRefusedError]) -> None:
    if not name:
        raise error(f"the {kind} has no name")
    if len(name) > size_max:
        raise error(f"the {kind} name has {len(name)} characters, at most {size_max} are allowed")
    if not _NAME.fullmatch(name):
        raise error(
            f"the {kind} name {quoted(name)} may only have letters, digits and the characters "
            "% | _ -"
        )
