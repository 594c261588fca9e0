"""What comes into being because somebody uses it: topics, groups and their retry topics.

All of it is a command in the log like any other; the message that made a topic travels in the same
entry.
"""

from __future__ import annotations

from broker.context import BrokerContext
from broker.ingest.state_quota import (
    check_auto_created_topic_quota,
    check_group_quota,
    check_topic_quota,
)
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.state.commands import PutGroup, PutTopic
from broker.topics_and_groups import (
    DLQ_PREFIX,
    PERM_INHERIT,
    RETRY_PREFIX,
    TOPIC_SIZE_MAX,
    UNSENDABLE_TOPICS,
    GroupConfig,
    TopicConfig,
    check_group_name,
    check_topic_name,
    retry_topic,
)


def auto_create_topic(
    context: BrokerContext, name: str, default_topic: str, default_queues: int
) -> TopicConfig:
    """Creates a topic that a producer sends to and nobody has created (section 10.1).

    Raises :class:`~broker.topics_and_groups.NameRefusedError` for a bad name, and
    :class:`~broker.remoting.protocol.errors.RequestError`: 17 where topics are not created in this
    way, or not any more, 16 for a topic of the broker's own.
    """
    if len(name) > TOPIC_SIZE_MAX:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the topic name has {len(name)} characters, at most {TOPIC_SIZE_MAX} are allowed",
        )
    check_topic_name(name)
    if name in UNSENDABLE_TOPICS:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
        )
    template = context.batcher.topic(default_topic)
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        created = TopicConfig(name, 1, 1)
    elif (
        context.settings.auto_create_topics
        and template is not None
        and template.perm & PERM_INHERIT
        and default_queues > 0
    ):
        queues = min(default_queues, template.write_queues)
        created = TopicConfig(name, queues, queues, template.perm & ~PERM_INHERIT)
    else:
        raise RequestError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
        )
    check_auto_created_topic_quota(context.batcher, created)
    context.batcher.add_command(PutTopic.of(created, context.wall_clock()))
    return created


def ensure_group(context: BrokerContext, group: str) -> None:
    """Creates a group and its retry topic where they are missing; does nothing but on a leader.

    Raises :class:`~broker.topics_and_groups.NameRefusedError` for a bad name, and
    :class:`~broker.remoting.protocol.errors.RequestError` where there are too many.
    """
    batcher = context.batcher
    topic = retry_topic(group)
    group_missing = batcher.group(group) is None
    topic_missing = batcher.topic(topic) is None and len(topic) <= TOPIC_SIZE_MAX
    if not (group_missing or topic_missing):
        return
    check_group_name(group)
    if not batcher.serving:
        return
    retries = TopicConfig(topic, 1, 1)
    if group_missing:
        check_group_quota(batcher, group, automatic=True)
    if topic_missing:
        check_topic_quota(batcher, retries)
    now_ms = context.wall_clock()
    if group_missing:
        batcher.add_command(PutGroup.of(GroupConfig(group), now_ms))
    if topic_missing:
        batcher.add_command(PutTopic.of(retries, now_ms))
