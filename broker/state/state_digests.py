"""The digests of the applied state, kept as it changes (see :mod:`store.state.state_digests`).

Code that changes the state first marks the items of a command as dirty. Their values are looked up
when digests are needed. So a change costs one entry in a dict, and several changes of one item
between two proofs cost one digest. The digest covers the actual items, not the intended ones. Each
proof also digests a few unchanged items. So memory errors are found too, at once in a small state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from broker.state.broker_state import BrokerState, TimerProgress, fields_of, topic_row
from broker.state.commands import (
    CheckTransaction,
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    EndTransaction,
    Expire,
    PopAck,
    PopChange,
    PopForget,
    PopReceive,
    PopWait,
    PutGroup,
    PutTopic,
    PutTopicRetention,
    Recall,
    Timer,
    Trim,
)
from broker.state.pop_queues import PopKey, unpack_runs, unpack_waiting
from broker.state.recalled_messages import TimedKey
from broker.topics_and_groups import TopicConfig
from store.index.consume_queue import ConsumeQueue
from store.index.consume_queues import ConsumeQueues
from store.state.state_digests import (
    DIGEST_MODULUS,
    item_digest,
    pack_digests,
    requests_item,
    sum_of,
)

RECHECKED_ITEMS = 64
"""The number of items of each table that each proof digests again, changed or not."""

FOLDED_AT = 1 << 16
"""The number of items that may wait for their digest; beyond it all are digested at once."""

_CURSOR = -1
"""Stands for the offset in the key of a cursor."""

K = TypeVar("K", bound=Hashable)


class Machine(Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""

    state: BrokerState
    expired_position: int
    segment_times: dict[int, int]


class DigestTable(Generic[K]):
    """The digest of one table, by item."""

    __slots__ = ("_digests", "_item", "_keys", "_sum", "_to_recheck", "dirty")

    def __init__(self, item: Callable[[K], object], keys: Callable[[], Iterable[K]]) -> None:
        """``item`` gives the value of a key, None if there is none; ``keys`` gives all keys."""
        self._item = item
        self._keys = keys
        self.begin()

    def begin(self) -> None:
        """Starts again for another table: all items are digested."""
        self._digests: dict[K, int] = {}
        self._sum = 0
        self._digest_again(self._keys())
        self._to_recheck: list[K] = []
        self.dirty: dict[K, None] = {}
        """The keys of items that may have changed; every change of the table adds to it."""

    def fold(self) -> None:
        """Digests the dirty items."""
        self._digest_again(self.dirty)
        self.dirty.clear()

    def total(self) -> int:
        """The digest of the present table."""
        self.fold()
        if not self._to_recheck:
            self._to_recheck = list(dict.fromkeys((*self._digests, *self._keys())))
        self._digest_again(self._to_recheck[-RECHECKED_ITEMS:])
        del self._to_recheck[-RECHECKED_ITEMS:]
        return self._sum

    def _digest_again(self, keys: Iterable[K]) -> None:
        item_of, digests, change = self._item, self._digests, 0
        for key in keys:
            item = item_of(key)
            change -= digests.get(key, 0)
            if item is None:
                digests.pop(key, None)
            else:
                now = digests[key] = item_digest(item)
                change += now
        self._sum = (self._sum + change) % DIGEST_MODULUS


class StateDigests:
    """The digests of one machine. Its state may be another object after :meth:`begin`."""

    def __init__(self, machine: Machine, queues: ConsumeQueues) -> None:
        self._machine = machine
        self._queues = queues
        self._topics = DigestTable(self._topic, lambda: machine.state.topics)
        self._groups = DigestTable(self._group, lambda: machine.state.groups)
        self._offsets = DigestTable(self._offset, self._offset_keys)
        self._pop = DigestTable(self._pop_item, self._pop_keys)
        self._recalled = DigestTable(self._recalled_item, lambda: machine.state.recalled)
        self.queues = DigestTable(self._queue, queues.all)
        self.transactions = DigestTable(self._transaction, lambda: machine.state.transactions)
        self.segments = DigestTable(self._segment, lambda: machine.segment_times)

    def begin(self) -> None:
        """Starts again for a restored state."""
        for table in self._tables:
            table.begin()

    def mark_dirty(self, command: Command) -> None:
        """Marks the items that a command may change. Called before it is applied."""
        match command:
            case CommitOffset(group, topic, queue_id, _) | PopForget(group, topic, queue_id):
                self._offsets.dirty[group, topic, queue_id] = None
                if self._machine.state.pop.queues:
                    self._mark_pop_queues([(group, topic, queue_id)])
            case PopReceive() | PopAck():
                self._mark_deliveries(command[:3], unpack_runs(command.runs))
            case PopWait():
                offsets = (offset for offset, _hash in unpack_waiting(command.rows))
                self._mark_deliveries(command[:3], offsets)
            case PopChange():
                self._mark_deliveries(command[:3], (command.offset,))
            case PutTopic(name) | PutTopicRetention(name):
                self._topics.dirty[name] = None
            case DeleteTopic(name):
                self._topics.dirty[name] = None
                self.queues.dirty.update(dict.fromkeys(self._queues.of_topic(name).values()))
                self._mark_pop_queues(self._machine.state.pop.keys_of(topic=name))
            case Trim(topic, queue_id, _):
                queue = self._queues.get(topic, queue_id)
                if queue is not None:
                    self.queues.dirty[queue] = None
            case PutGroup(name):
                self._groups.dirty[name] = None
            case DeleteGroup(name):
                self._groups.dirty[name] = None
                self._mark_pop_queues(self._machine.state.pop.keys_of(group=name))
                for (group, topic), queues in self._machine.state.offsets.items():
                    if group == name:
                        for queue_id in queues:
                            self._offsets.dirty[group, topic, queue_id] = None
            case Recall(deliver_ms, offset):
                self._recalled.dirty[deliver_ms, offset] = None
            case Timer(deliver_ms, offset, _):
                passed = self._machine.state.recalled.until((deliver_ms, offset))
                self._recalled.dirty.update(dict.fromkeys(passed))
            case EndTransaction(offset) | CheckTransaction(offset):
                self.transactions.dirty[offset] = None
            case Expire():
                self.queues.dirty.update(dict.fromkeys(self._queues.all()))
                self.transactions.dirty.update(dict.fromkeys(self._machine.state.transactions))
                self.segments.dirty.update(dict.fromkeys(self._machine.segment_times))

    def _mark_deliveries(self, key: PopKey, offsets: Iterable[int]) -> None:
        self._offsets.dirty[key] = None
        dirty = self._pop.dirty
        dirty[*key, _CURSOR] = None
        for offset in offsets:
            dirty[*key, offset] = None

    def _mark_pop_queues(self, keys: Iterable[PopKey]) -> None:
        for key in keys:
            queue = self._machine.state.pop.queues.get(key)
            if queue is not None:
                self._mark_deliveries(key, queue.deliveries)

    def fold(self) -> None:
        """Digests dirty items. Called now and then, so that their number stays bounded."""
        for table in self._tables:
            if len(table.dirty) > FOLDED_AT:
                table.fold()

    def packed(self) -> bytes:
        """The digests of the present state."""
        machine, state = self._machine, self._machine.state
        requests = state.requests.data
        waiting: list[object] = list(state.schedule.items())
        if state.timer != TimerProgress():
            waiting.append(fields_of(state.timer))
        pop_times = [("pop", state.pop.time_ms)] if state.pop.time_ms else []
        log = (machine.expired_position, state.store_timestamp_ms)
        sums = (
            self._topics.total() + item_digest(fields_of(state.topics_version)),
            self._groups.total() + item_digest(fields_of(state.groups_version)),
            self._offsets.total() + self._pop.total() + sum_of(pop_times),
            self.queues.total(),
            self.transactions.total(),
            sum_of(waiting) + self._recalled.total(),
            sum_of([requests_item(requests)] if requests else []),
            sum_of((*state.settings.items(), *state.access.items())),
            self.segments.total() + item_digest(log),
        )
        return pack_digests([each % DIGEST_MODULUS for each in sums])

    @property
    def _tables(self) -> Iterable[DigestTable[Any]]:
        return (
            self._topics,
            self._groups,
            self._offsets,
            self._pop,
            self._recalled,
            self.queues,
            self.transactions,
            self.segments,
        )

    # --- the items

    def _topic(self, name: str) -> object:
        topic: TopicConfig | None = self._machine.state.topics.get(name)
        if topic is None or topic is self._machine.state.system.get(name):
            return None
        return topic_row(topic)

    def _group(self, name: str) -> object:
        group = self._machine.state.groups.get(name)
        return None if group is None else fields_of(group)

    def _offset(self, key: tuple[str, str, int]) -> object:
        offset = self._machine.state.offset(*key)
        return None if offset is None else (*key, offset)

    def _offset_keys(self) -> Iterable[tuple[str, str, int]]:
        for (group, topic), queues in self._machine.state.offsets.items():
            for queue_id in queues:
                yield group, topic, queue_id

    def _pop_item(self, key: tuple[str, str, int, int]) -> object:
        *of, offset = key
        queue = self._machine.state.pop.queues.get(key[:3])
        if queue is None:
            return None
        if offset == _CURSOR:
            return (*of, queue.next_offset, "next")
        delivery = queue.deliveries.get(offset)
        return None if delivery is None else (*key, *delivery)

    def _pop_keys(self) -> Iterable[tuple[str, str, int, int]]:
        for key, queue in self._machine.state.pop.queues.items():
            yield (*key, _CURSOR)
            for offset in queue.deliveries:
                yield (*key, offset)

    def _recalled_item(self, key: TimedKey) -> object:
        return (*key, "recalled") if key in self._machine.state.recalled else None

    def _transaction(self, offset: int) -> object:
        found = self._machine.state.transactions.get(offset)
        return None if found is None else (offset, *found)

    def _segment(self, start: int) -> object:
        time_ms = self._machine.segment_times.get(start)
        return None if time_ms is None else (start, time_ms)

    def _queue(self, queue: ConsumeQueue) -> object:
        if self._queues.get(queue.topic, queue.queue_id) is not queue:
            return None  # a checkpoint would not have it
        return queue.topic, queue.queue_id, queue.first_offset, queue.end_offset
