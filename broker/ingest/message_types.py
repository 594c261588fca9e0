"""The type of a message, and whether its topic allows it (RocketMQ 5's ``message.type``)."""

from __future__ import annotations

from broker.errors import MessageTypeError
from broker.ingest.message_properties import HALF, is_delayed
from broker.topics_and_groups import MESSAGE_TYPES, TopicConfig
from store.message.properties import find_property

SHARDING_KEY = b"__SHARDINGKEY"
"""The property with the message group."""

_TAKES_ALL = (MESSAGE_TYPES[0], MESSAGE_TYPES[-1])


def message_type_of(properties: bytes) -> str:
    """One of :data:`~broker.topics_and_groups.MESSAGE_TYPES`, by the rules and in the order of
    RocketMQ's ``TopicMessageType.parseFromMessageProperty``."""
    if HALF.search(properties):
        return "TRANSACTION"
    if is_delayed(properties):
        return "DELAY"
    return "FIFO" if find_property(properties, SHARDING_KEY) is not None else "NORMAL"


def check_message_type(topic: TopicConfig, properties: bytes) -> None:
    """Raises :class:`~broker.errors.MessageTypeError` for a type that the topic does not allow."""
    expected = topic.message_type
    if expected in _TAKES_ALL:
        return
    found = message_type_of(properties)
    if found != expected:
        raise MessageTypeError(
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type "
            f"is {found}: the topic {topic.name} takes no other"
        )
