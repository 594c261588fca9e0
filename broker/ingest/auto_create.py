"""Creates topics, groups and their retry topics on first use.

Each creation is a command in the log. It travels in the entry of the message that caused it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.errors import ForbiddenError, LongTopicNameError, unknown_topic
from broker.group_commit.batcher import Batcher
from broker.ingest.state_quota import (
    check_auto_created_topic_quota,
    check_group_quota,
    check_topic_quota,
)
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


class AutoCreateSettings(Protocol):
    """The part of :class:`~broker.config.dynamic_settings.DynamicSettings` that is used here."""

    @property
    def auto_create_topics(self) -> bool: ...


class AutoCreator:
    """Creates missing topics and groups, on the leader."""

    def __init__(
        self, batcher: Batcher, settings: AutoCreateSettings, wall_clock: Callable[[], int]
    ) -> None:
        """``wall_clock`` gives milliseconds since 1970."""
        self._batcher = batcher
        self._settings = settings
        self._wall_clock = wall_clock

    def create_topic(self, name: str, default_topic: str, default_queues: int) -> TopicConfig:
        """Creates a topic on the first message to it (section 10.1).

        Raises :class:`~broker.topics_and_groups.IllegalTopicNameError` or
        :class:`~broker.errors.LongTopicNameError` for a bad name,
        :class:`~broker.errors.UnknownTopicError` if topics are not created by messages, or too many
        already are, and :class:`~broker.errors.ForbiddenError` for a system topic.
        """
        if len(name) > TOPIC_SIZE_MAX:
            raise LongTopicNameError(len(name), TOPIC_SIZE_MAX)
        check_topic_name(name)
        if name in UNSENDABLE_TOPICS:
            raise ForbiddenError(f"Sending message to topic[{name}] is forbidden.")
        template = self._batcher.topic(default_topic)
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            created = TopicConfig(name, 1, 1)
        elif (
            self._settings.auto_create_topics
            and template is not None
            and template.perm & PERM_INHERIT
            and default_queues > 0
        ):
            queues = min(default_queues, template.write_queues)
            created = TopicConfig(name, queues, queues, template.perm & ~PERM_INHERIT)
        else:
            raise unknown_topic(name)
        check_auto_created_topic_quota(self._batcher, created)
        self._batcher.add_command(PutTopic.of(created, self._wall_clock()))
        return created

    def ensure_group(self, group: str) -> None:
        """Creates a missing group and its retry topic; only a leader does so.

        Raises :class:`~broker.topics_and_groups.IllegalGroupNameError` for a bad name, and
        :class:`~broker.errors.UnknownGroupError` or :class:`~broker.errors.QuotaExceededError`
        if there are too many groups or topics.
        """
        batcher = self._batcher
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
        now_ms = self._wall_clock()
        if group_missing:
            batcher.add_command(PutGroup.of(GroupConfig(group), now_ms))
        if topic_missing:
            batcher.add_command(PutTopic.of(retries, now_ms))
