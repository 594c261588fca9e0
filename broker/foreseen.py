"""The broker's state as it will be: what is applied, and on top what is staged but not yet applied.

A request that changes a topic is judged by what the requests before it will have made of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias, TypeVar

from broker.commands import Command, CommitOffset, DeleteGroup, DeleteTopic, PutGroup, PutTopic
from broker.staging import StagedBatch
from broker.state import BrokerState
from broker.topics import GroupConfig, TopicConfig

K = TypeVar("K")
V = TypeVar("V")

_OffsetKey: TypeAlias = tuple[str, str, int]
"""Group, topic, queue id."""

_Staged: TypeAlias = dict[K, tuple[StagedBatch, V]]
"""The newest value, and the batch that brings it."""


class AppliedState(Protocol):
    """What is needed of :class:`~broker.machine.BrokerStateMachine`."""

    @property
    def state(self) -> BrokerState: ...


class ForeseenState:
    """Topics, groups and offsets once everything staged is applied."""

    def __init__(self, applied: AppliedState) -> None:
        self._applied = applied
        self._topics: _Staged[str, TopicConfig | None] = {}
        self._groups: _Staged[str, GroupConfig | None] = {}
        self._offsets: _Staged[_OffsetKey, int] = {}
        self._lazy: dict[_OffsetKey, int] = {}

    def topic(self, name: str) -> TopicConfig | None:
        staged = self._topics.get(name)
        return self._applied.state.topics.get(name) if staged is None else staged[1]

    def group(self, name: str) -> GroupConfig | None:
        staged = self._groups.get(name)
        return self._applied.state.groups.get(name) if staged is None else staged[1]

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        key = (group, topic, queue_id)
        lazy = self._lazy.get(key)
        if lazy is not None:
            return lazy
        staged = self._offsets.get(key)
        return self._applied.state.offset(*key) if staged is None else staged[1]

    def staged(self, batch: StagedBatch, command: Command) -> None:
        """``batch`` will bring what ``command`` changes."""
        match command:
            case CommitOffset():
                self._lazy.pop(command[:3], None)
                self._offsets[command[:3]] = (batch, command.offset)
            case PutTopic():
                self._topics[command.name] = (batch, command.config)
            case DeleteTopic():
                self._topics[command.name] = (batch, None)
            case PutGroup():
                self._groups[command.name] = (batch, command.config)
            case DeleteGroup():
                self._groups[command.name] = (batch, None)
                if command.remove_offsets:
                    _drop_group(self._lazy, command.name)
                    _drop_group(self._offsets, command.name)

    def applied(self, batch: StagedBatch) -> None:
        """What ``batch`` brought is part of the applied state, or will never be."""
        if self._topics:
            _drop_of(self._topics, batch)
        if self._groups:
            _drop_of(self._groups, batch)
        if self._offsets:
            _drop_of(self._offsets, batch)

    def clear(self, but: Iterable[StagedBatch]) -> None:
        """Nothing is staged any more, but what these batches bring."""
        self._topics.clear()
        self._groups.clear()
        self._offsets.clear()
        self._lazy.clear()
        for batch in but:
            for command in batch.commands:
                self.staged(batch, command)

    # --- offsets that no batch brings yet

    @property
    def has_lazy_offsets(self) -> bool:
        return bool(self._lazy)

    def add_lazy_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An offset that waits for a batch to travel in; of several only the last is kept."""
        self._lazy[group, topic, queue_id] = offset

    def take_lazy_offsets(self, most: int) -> Iterable[CommitOffset]:
        """Some of them, oldest first, for a batch in which they are to be :meth:`staged`."""
        return [CommitOffset(*key, self._lazy[key]) for key in list(self._lazy)[:most]]


def _drop_group(offsets: dict[_OffsetKey, V], group: str) -> None:
    for key in [key for key in offsets if key[0] == group]:
        del offsets[key]


def _drop_of(staged: _Staged[K, V], batch: StagedBatch) -> None:
    for key in [key for key, (by, _) in staged.items() if by is batch]:
        del staged[key]
