"""The pending state of the broker: the applied state with the pending changes on top.

So a request is checked against the changes of the requests before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

from broker.group_commit.pending_batch import PendingBatch
from broker.group_commit.pending_pop import PendingPop
from broker.group_commit.ports import AppliedState
from broker.state.commands import (
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    PopAck,
    PopChange,
    PopReceive,
    PopWait,
    PutGroup,
    PutTopic,
    PutTopicRetention,
)
from broker.topics_and_groups import GroupConfig, TopicConfig

LAZY_SECONDS = 1.0
"""How long an offset of a pull request may wait for an entry."""

K = TypeVar("K")
V = TypeVar("V")

_OffsetKey: TypeAlias = tuple[str, str, int]
"""Group, topic, queue id."""

_Pending: TypeAlias = dict[K, tuple[PendingBatch, V]]
"""The newest value, and the batch that sets it."""


class Totals(NamedTuple):
    """Counts that have a limit."""

    topics: int
    queues: int
    groups: int


class PendingState:
    """Topics, groups and offsets once everything pending is applied."""

    def __init__(self, applied: AppliedState) -> None:
        self._applied = applied
        self._topics: _Pending[str, TopicConfig | None] = {}
        self._groups: _Pending[str, GroupConfig | None] = {}
        self._offsets: _Pending[_OffsetKey, int] = {}
        self._lazy: dict[_OffsetKey, int] = {}
        self.pop = PendingPop(applied)
        self._totals: Totals | None = None
        """None if they must be counted. While something is pending, only pending commands change
        them."""

    def totals(self) -> Totals:
        """The numbers of topics, of their queues, and of groups."""
        if self._totals is None:
            state = self._applied.state
            topics, queues, groups = state.topic_count, state.queue_count, len(state.groups)
            for name, (_, topic) in self._topics.items():
                known = state.topics.get(name)
                topics += (topic is not None) - (known is not None)
                queues += _queues(topic) - _queues(known)
            for name, (_, group) in self._groups.items():
                groups += (group is not None) - (name in state.groups)
            self._totals = Totals(topics, queues, groups)
        return self._totals

    def topic(self, name: str) -> TopicConfig | None:
        pending = self._topics.get(name)
        return self._applied.state.topics.get(name) if pending is None else pending[1]

    def group(self, name: str) -> GroupConfig | None:
        pending = self._groups.get(name)
        return self._applied.state.groups.get(name) if pending is None else pending[1]

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        key = (group, topic, queue_id)
        lazy = self._lazy.get(key)
        if lazy is not None:
            return lazy
        pending = self._offsets.get(key)
        return self._applied.state.offset(*key) if pending is None else pending[1]

    def offset_count(self) -> int:
        """The number of offsets, at most: a pending one that replaces another counts as well."""
        return self._applied.state.offset_count + len(self._offsets) + len(self._lazy)

    def add(self, batch: PendingBatch, command: Command) -> None:
        """Adds a command that ``batch`` holds."""
        self.pop.add(batch, command)
        match command:
            case CommitOffset():
                key = command[:3]
                self._lazy.pop(key, None)
                cursor = self.pop.queue(key)
                offset = command.offset if cursor is None else cursor.queue.committed_offset
                self._offsets[key] = (batch, offset)
            case PopReceive() | PopWait() | PopAck() | PopChange():
                cursor = self.pop.queue(command[:3])
                if cursor is not None:
                    self._offsets[command[:3]] = (batch, cursor.queue.committed_offset)
            case PutTopic():
                config = command.config(self.topic(command.name))
                self._put_topic(batch, command.name, config)
            case PutTopicRetention():
                known = self.topic(command.name)
                if known is not None:
                    changed = replace(known, retention_ms=command.retention_ms)
                    self._put_topic(batch, command.name, changed)
            case DeleteTopic():
                self._put_topic(batch, command.name, None)
            case PutGroup():
                self._put_group(batch, command.name, command.config)
            case DeleteGroup():
                self._put_group(batch, command.name, None)
                if command.remove_offsets:
                    _drop_group(self._lazy, command.name)
                    _drop_group(self._offsets, command.name)

    def _put_topic(self, batch: PendingBatch, name: str, topic: TopicConfig | None) -> None:
        if self._totals is not None:
            known, totals = self.topic(name), self._totals
            self._totals = totals._replace(
                topics=totals.topics + (topic is not None) - (known is not None),
                queues=totals.queues + _queues(topic) - _queues(known),
            )
        self._topics[name] = (batch, topic)

    def _put_group(self, batch: PendingBatch, name: str, group: GroupConfig | None) -> None:
        if self._totals is not None:
            change = (group is not None) - (self.group(name) is not None)
            self._totals = self._totals._replace(groups=self._totals.groups + change)
        self._groups[name] = (batch, group)

    def applied(self, batch: PendingBatch) -> None:
        """Drops the changes of ``batch``: it was applied, or never will be."""
        self._totals = None
        if self._topics:
            _drop_of(self._topics, batch)
        if self._groups:
            _drop_of(self._groups, batch)
        if self._offsets:
            _drop_of(self._offsets, batch)
        self.pop.applied(batch)

    def clear(self, but: Iterable[PendingBatch]) -> None:
        """Drops everything pending except the changes of these batches."""
        self._totals = None
        self._topics.clear()
        self._groups.clear()
        self._offsets.clear()
        self.pop.clear()
        self._lazy.clear()
        for batch in but:
            for command in batch.commands:
                self.add(batch, command)

    def restart_pop(self, pending: Iterable[PendingBatch]) -> None:
        """Derives the deliveries again from the applied state and ``pending``, because a batch was
        dropped."""
        self.pop.clear()
        for batch in pending:
            for command in batch.commands:
                self.pop.add(batch, command)

    # --- offsets that are in no batch yet

    @property
    def has_lazy_offsets(self) -> bool:
        return bool(self._lazy)

    def add_lazy_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Adds an offset that waits for the next batch. Of several for one queue only the last is
        kept."""
        self._lazy[group, topic, queue_id] = offset

    def take_lazy_offsets(self, most: int) -> Iterable[CommitOffset]:
        """At most ``most`` of them, oldest first. The caller passes each to :meth:`add` with its
        batch."""
        return [CommitOffset(*key, self._lazy[key]) for key in list(self._lazy)[:most]]


def _drop_group(offsets: dict[_OffsetKey, V], group: str) -> None:
    for key in [key for key in offsets if key[0] == group]:
        del offsets[key]


def _queues(topic: TopicConfig | None) -> int:
    return 0 if topic is None else topic.queues


def _drop_of(pending: _Pending[K, V], batch: PendingBatch) -> None:
    for key in [key for key, (by, _) in pending.items() if by is batch]:
        del pending[key]
