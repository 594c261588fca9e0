"""The deliveries of POP once everything pending is applied.

The leader alone decides which member receives which message. It decides by these deliveries. They
are indexed by the time at which they become visible, and by the nonces of receive requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from broker.group_commit.pending_batch import PendingBatch
from broker.group_commit.ports import AppliedState
from broker.state.broker_state import changed_by
from broker.state.commands import (
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    PopAck,
    PopChange,
    PopCommand,
    PopForget,
    PopReceive,
    PopWait,
)
from broker.state.pop_queues import PopDelivery, PopKey, PopQueue, unpack_runs, unpack_waiting

_STALE_MIN = 64
"""Pace: so many deliveries and offsets of removed messages stay before they are dropped."""


class PendingPopQueue:
    """The pending deliveries of a group in one queue."""

    __slots__ = ("_by_nonce", "_due", "_skipped_to", "_visible", "exhausted", "lock", "queue")

    def __init__(self, queue: PopQueue) -> None:
        self.queue = queue
        self.lock = asyncio.Lock()
        """Held while a receive request finds and loads messages."""
        self._skipped_to = 0
        self._visible: dict[int, None] = {}
        """Offsets that were visible at a look. They include deliveries that wait for their message
        group, and some that are gone since. Every other delivery is in ``_due``."""
        self.exhausted: dict[int, int] = {}
        """By offset, the attempts that the record of a message counts that was received too often.
        A look counts it without its record. Otherwise those that cannot become dead letters now
        would keep others back."""
        self._index()

    def _index(self) -> None:
        """Indexes all deliveries."""
        self._by_nonce: dict[int, dict[int, list[int]]] = {}
        """Offsets by nonce and time of visibility. Deliveries of one nonce have several times once
        the invisible time of some was changed."""
        for offset, (visible_ms, attempt, nonce, _hash) in self.queue.deliveries.items():
            if attempt:
                self._by_nonce.setdefault(nonce, {}).setdefault(visible_ms, []).append(offset)
            else:
                self._visible[offset] = None
        self._due = [(at, nonce) for nonce, times in self._by_nonce.items() for at in times]
        heapify(self._due)

    def __len__(self) -> int:
        return len(self.queue.deliveries)

    @property
    def next_offset(self) -> int:
        """The offset of the first message that no member has received and no filter skipped."""
        return max(self.queue.next_offset, self._skipped_to)

    def skip_to(self, offset: int) -> None:
        """A filter skipped the messages before ``offset``. The log may hear of it later: another
        leader looks at them again."""
        self._skipped_to = offset

    def apply(self, command: PopCommand | CommitOffset) -> None:
        changed_by(self.queue, command)
        match command:
            case PopReceive(runs=runs, nonce=nonce, visible_ms=visible_ms) if runs:
                self._received(visible_ms, nonce, [*unpack_runs(runs)])
            case PopChange(offset=offset, nonce=nonce, visible_ms=visible_ms):
                self._received(visible_ms, nonce, [offset])
            case PopWait(rows=rows):
                self._visible.update((offset, None) for offset, _ in unpack_waiting(rows))

    def note_exhausted(self, offset: int, reconsume_times: int) -> None:
        """Notes what a record says. Forgets it some time after its delivery has ended."""
        known, deliveries = self.exhausted, self.queue.deliveries
        if len(known) > 2 * len(deliveries) + _STALE_MIN:
            self.exhausted = known = {at: known[at] for at in known if at in deliveries}
        known[offset] = reconsume_times

    def _received(self, visible_ms: int, nonce: int, offsets: list[int]) -> None:
        times = self._by_nonce.setdefault(nonce, {})
        known = times.get(visible_ms)
        if known is None:
            times[visible_ms] = offsets
            heappush(self._due, (visible_ms, nonce))
        else:
            known += [offset for offset in offsets if offset not in known]
        if len(self._due) > 2 * len(self.queue.deliveries) + _STALE_MIN:
            self._index()

    def visible(self, now_ms: int) -> Iterator[tuple[int, PopDelivery]]:
        """The visible deliveries, ordered by offset. The queue must not change meanwhile.

        ``now_ms`` may be older than that of an earlier look: requests wait for locks and disks.
        """
        self._end_deliveries(now_ms)
        deliveries = self.queue.deliveries
        found = self._visible
        for offset in sorted(found):
            delivery = deliveries.get(offset)
            if delivery is not None and delivery.visible_ms <= now_ms:
                yield offset, delivery
                continue
            del found[offset]
            if delivery is not None:
                self._received(delivery.visible_ms, delivery.nonce, [offset])

    def next_visible_ms(self, now_ms: int) -> int | None:
        """When the next delivery may become visible, after ``now_ms``."""
        self._end_deliveries(now_ms)
        return self._due[0][0] if self._due else None

    def _end_deliveries(self, now_ms: int) -> None:
        """Makes messages visible whose invisible time is over and that were not acknowledged."""
        while self._due and self._due[0][0] <= now_ms:
            visible_ms, nonce = heappop(self._due)
            times = self._by_nonce[nonce]
            self._visible.update(dict.fromkeys(times.pop(visible_ms)))
            if not times:
                del self._by_nonce[nonce]
        known = self.queue.deliveries
        if len(self._visible) > 2 * len(known) + _STALE_MIN:  # FIFO order does not read them
            self._visible = {offset: None for offset in self._visible if offset in known}

    def received_with(self, nonces: Iterable[int], now_ms: int) -> list[int]:
        """The offsets that were received with any of these nonces and are still invisible, in
        order."""
        known = self.queue.deliveries
        return sorted(
            offset
            for nonce in nonces
            for visible_ms, offsets in self._by_nonce.get(nonce, {}).items()
            if visible_ms > now_ms
            for offset in offsets
            if (delivery := known.get(offset)) is not None
            and (delivery.visible_ms, delivery.nonce) == (visible_ms, nonce)
        )


class PendingPop:
    """The pending deliveries of all groups that this leader has looked at."""

    def __init__(self, applied: AppliedState) -> None:
        self._applied = applied
        self._queues: dict[PopKey, PendingPopQueue] = {}
        self._deleted: dict[PopKey, PendingBatch] = {}
        """Cursors that the applied state may still have, and the batch that deletes them."""

    def queue(self, key: PopKey) -> PendingPopQueue | None:
        """The deliveries of a group in a queue, or None if the group has no cursor there."""
        try:
            return self._queues[key]
        except KeyError:
            known = self._applied.state.pop.queues.get(key)
            if known is None or key in self._deleted:
                return None
            found = self._queues[key] = PendingPopQueue(known.copy())
            return found

    def add(self, batch: PendingBatch, command: Command) -> None:
        """Applies a command that ``batch`` holds."""
        match command:
            case CommitOffset():
                if self._queues or self._applied.state.pop.queues:
                    found = self.queue(command[:3])
                    if found is not None:
                        found.apply(command)
            case PopForget():
                self._drop(batch, command[:3])
            case PopReceive() | PopWait() | PopAck() | PopChange():
                key = command[:3]
                found = self.queue(key)
                if found is None and isinstance(command, PopReceive | PopWait):
                    found = self._queues[key] = PendingPopQueue(PopQueue(command.next_offset))
                if found is not None:
                    found.apply(command)
            case DeleteGroup(name):
                self._drop_of(batch, group=name)
            case DeleteTopic(name):
                self._drop_of(batch, topic=name)

    def _drop_of(
        self, batch: PendingBatch, *, group: str | None = None, topic: str | None = None
    ) -> None:
        for key in (*self._queues, *self._applied.state.pop.keys_of(group=group, topic=topic)):
            if group == key[0] or topic == key[1]:
                self._drop(batch, key)

    def _drop(self, batch: PendingBatch, key: PopKey) -> None:
        self._queues.pop(key, None)
        self._deleted[key] = batch

    def applied(self, batch: PendingBatch) -> None:
        """``batch`` was applied, or never will be."""
        if self._deleted:
            for key in [key for key, by in self._deleted.items() if by is batch]:
                del self._deleted[key]

    def clear(self) -> None:
        """Forgets all pending commands."""
        self._queues.clear()
        self._deleted.clear()
