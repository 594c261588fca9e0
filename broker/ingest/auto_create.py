"""Creates topics, groups and their retry topics on first use.

Each creation is a command in the log. It travels in the entry of the message that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from broker.errors import ForbiddenError, LongTopicNameError, unknown_topic
from broker.group_commit.batcher import Batcher
from broker.ingest.state_quota import (
    check_auto_created_topic_quota,
    check_group_quota,
    check_topic_quota,
)
from broker.state.commands import Command, PutGroup, PutTopic
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
    is_reserved,
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

    def new_topic(
        self, name: str, default_topic: str, default_queues: int
    ) -> tuple[TopicConfig, Sequence[PutTopic]]:
        """A topic that its first message creates (section 10.1), and the command for that. It
        travels with the message, so a refused message leaves no topic behind.

        Raises :class:`~broker.topics_and_groups.IllegalTopicNameError` or
        :class:`~broker.errors.LongTopicNameError` for a bad name,
        :class:`~broker.errors.UnknownTopicError` if topics are not created by messages, or too many
        already are, and :class:`~broker.errors.ForbiddenError` for a system topic.
        """
        if len(name) > TOPIC_SIZE_MAX:
            raise LongTopicNameError(len(name), TOPIC_SIZE_MAX)
        check_topic_name(name)
        if name in UNSENDABLE_TOPICS or is_reserved(name):
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
        return created, (PutTopic.of(created, self._wall_clock()),)

    def ensure_group(self, group: str) -> None:
        """The same as :meth:`ensure_groups` for one group."""
        if self._batcher.group(group) is None or self._lacks_topic(group):
            self.ensure_groups((group,))

    def ensure_groups(self, groups: Iterable[str]) -> None:
        """Creates missing groups and their retry topics, all or none; only a leader does so.

        Raises :class:`~broker.topics_and_groups.IllegalGroupNameError` for a bad name, and
        :class:`~broker.errors.UnknownGroupError` or :class:`~broker.errors.QuotaExceededError`
        if there are too many groups or topics.
        """
        batcher = self._batcher
        named = dict.fromkeys(groups)
        without = [each for each in named if batcher.group(each) is None]
        topics = [retry_topic(each) for each in named if self._lacks_topic(each)]
        for group in without:
            check_group_name(group)
        if not (without or topics) or not batcher.serving:
            return
        totals = batcher.totals()
        for group in without:
            check_group_quota(totals, group, automatic=True)
            totals = totals._replace(groups=totals.groups + 1)
        for topic in topics:
            check_topic_quota(batcher, TopicConfig(topic, 1, 1), totals)
            totals = totals._replace(topics=totals.topics + 1, queues=totals.queues + 1)
        now_ms = self._wall_clock()
        commands: list[Command] = [PutGroup.of(GroupConfig(each), now_ms) for each in without]
        commands += [PutTopic.of(TopicConfig(each, 1, 1), now_ms) for each in topics]
        batcher.add_in_one_entry((), commands)

    def _lacks_topic(self, group: str) -> bool:
        """Whether the group has no retry topic and may have one."""
        topic = retry_topic(group)
        return self._batcher.topic(topic) is None and len(topic) <= TOPIC_SIZE_MAX
