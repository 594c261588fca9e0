"""The deliveries of POP, which every replica knows from the log.

A group that receives from a queue by POP has a cursor there: the offset of the first message that
no member has received. The deliveries before it are kept until they are acknowledged. The group's
committed offset follows from both: it is the first message that is not acknowledged. A later commit
of a 4.x member acknowledges all messages before its offset, and never moves the group back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from struct import Struct, error
from typing import NamedTuple, TypeAlias

from dledger.errors import InvariantError, SafetyProperty

PopKey: TypeAlias = tuple[str, str, int]
"""Group, topic, queue id."""

RUN_MAX = 1 << 20
"""Format: the most offsets of one run. A receive request has far fewer."""

_PAIR = Struct(">qI")


class PopDelivery(NamedTuple):
    """One message that the group has not acknowledged."""

    visible_ms: int
    """The time from which on it may be received again."""
    attempt: int
    """How often it was received; 0: not yet, it waits for its message group."""
    nonce: int
    """The nonce of the last receive request or change: with ``visible_ms`` it names the
    delivery."""
    group_hash: int = 0
    """The hash of its message group; 0 if unknown."""


@dataclass(slots=True)
class PopQueue:
    """The deliveries of a group in one queue, in the order of their key, the offset.

    The first item of a plain dict is searched behind all that were removed before it.
    """

    next_offset: int
    deliveries: OrderedDict[int, PopDelivery] = field(default_factory=OrderedDict)

    @property
    def committed_offset(self) -> int:
        """The first message that is not acknowledged."""
        return next(iter(self.deliveries), self.next_offset)

    def receive(self, next_offset: int, offsets: Iterable[int], nonce: int, until_ms: int) -> None:
        """A member receives the messages at ``offsets``, new ones or earlier ones again."""
        deliveries = self.deliveries
        for offset in offsets:
            known = deliveries.get(offset)
            if known is None:
                deliveries[offset] = PopDelivery(until_ms, 1, nonce)
            else:
                deliveries[offset] = PopDelivery(
                    until_ms, known.attempt + 1, nonce, known.group_hash
                )
        self.next_offset = max(self.next_offset, next_offset)

    def wait(self, next_offset: int, rows: Iterable[tuple[int, int]]) -> None:
        """New messages (offset, hash of the message group) wait for their message group."""
        for offset, group_hash in rows:
            self.deliveries.setdefault(offset, PopDelivery(0, 0, 0, group_hash))
        self.next_offset = max(self.next_offset, next_offset)

    def acknowledge(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.deliveries.pop(offset, None)

    def change(self, offset: int, nonce: int, until_ms: int) -> None:
        """The delivery at ``offset`` gets another time, and so another receipt handle."""
        known = self.deliveries.get(offset)
        if known is not None:
            self.deliveries[offset] = known._replace(nonce=nonce, visible_ms=until_ms)

    def commit(self, offset: int) -> None:
        """A 4.x member has consumed all messages before ``offset``."""
        if offset > self.committed_offset:
            self.acknowledge([*takewhile(lambda each: each < offset, self.deliveries)])
            self.next_offset = max(self.next_offset, offset)

    def copy(self) -> PopQueue:
        return PopQueue(self.next_offset, self.deliveries.copy())


@dataclass(slots=True)
class PopQueues:
    """The deliveries of all groups."""

    queues: dict[PopKey, PopQueue] = field(default_factory=dict)
    time_ms: int = 0
    """The newest time in a command of POP. No leader's clock is behind it."""
    delivery_count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.delivery_count = sum(len(queue.deliveries) for queue in self.queues.values())

    def __bool__(self) -> bool:
        return bool(self.queues or self.time_ms)

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drops the deliveries of a deleted group or topic."""
        for key in self.keys_of(group=group, topic=topic):
            self.delivery_count -= len(self.queues.pop(key).deliveries)

    def keys_of(self, *, group: str | None = None, topic: str | None = None) -> Sequence[PopKey]:
        return [key for key in self.queues if group == key[0] or topic == key[1]]

    def as_rows(self) -> list[object]:
        """The rows in a checkpoint: ``[time ms, [[group, topic, queue id, next offset, [[offset,
        visible ms, attempt, nonce, hash], ...]], ...]]``."""
        return [
            self.time_ms,
            [
                (*key, queue.next_offset, [(at, *each) for at, each in queue.deliveries.items()])
                for key, queue in sorted(self.queues.items(), key=lambda item: item[0])
            ],
        ]

    @classmethod
    def from_rows(cls, rows: Sequence[object]) -> PopQueues:
        """The reverse of :meth:`as_rows`. Raises ``ValueError`` or ``TypeError``."""
        time_ms, queues = rows
        if not isinstance(time_ms, int) or not isinstance(queues, list):
            raise TypeError("the deliveries of POP are not a time and a list")
        return cls(
            {
                (group, topic, queue_id): PopQueue(
                    next_offset,
                    OrderedDict((offset, PopDelivery(*each)) for offset, *each in deliveries),
                )
                for group, topic, queue_id, next_offset, deliveries in queues
            },
            time_ms,
        )


def pack_runs(offsets: Iterable[int]) -> bytes:
    """Ascending offsets in a command: for each run its first, i64, and its count, u32."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    return b"".join([_PAIR.pack(*run) for run in runs])


def unpack_runs(data: bytes) -> Iterator[int]:
    """The reverse of :func:`pack_runs`. Raises :class:`~dledger.errors.InvariantError`."""
    for first, length in _pairs(data):
        if length > RUN_MAX:
            raise InvariantError(SafetyProperty.SAME_STATE, f"a run has {length} offsets")
        yield from islice(count(first), length)


def pack_waiting(rows: Iterable[tuple[int, int]]) -> bytes:
    """Offsets and the hashes of their message groups: i64 and u32 each."""
    return b"".join([_PAIR.pack(*row) for row in rows])


def unpack_waiting(data: bytes) -> Iterator[tuple[int, int]]:
    """The reverse of :func:`pack_waiting`. Raises :class:`~dledger.errors.InvariantError`."""
    return _pairs(data)


def _pairs(data: bytes) -> Iterator[tuple[int, int]]:
    try:
        return _PAIR.iter_unpack(data)
    except error as fault:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"the offsets of a command are cut short: {fault}"
        ) from fault
