"""Offset resets of groups, also while they consume: to a time, to an offset, or to the end.

The new offsets are looked up, then committed like any others. The members are notified (request
220). Not every client understands that request, and one that does may first commit its old offset.
So the leader ignores commits for a reset queue, until the next pull of the group there. If that
pull does not begin at the new offset, the leader answers "offset moved" (21), as RocketMQ 5 does.
Only the leader knows pending resets, as in RocketMQ: if it fails over meanwhile, the members' own
commits count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from broker.delivery.long_polling import LongPolling
from broker.delivery.message_lookup import MessageLookup
from broker.delivery.message_reader import MessageReader
from broker.delivery.offset_quota import check_offset_quota
from broker.errors import (
    REFUSALS,
    QuotaExceededError,
    Refusal,
    UnknownGroupError,
    UnknownTopicError,
)
from broker.group_commit.batcher import Batcher
from broker.state.commands import Command, CommitOffset, PopForget
from store.errors import StoreError

RESET_SECONDS = 60.0
"""The time in seconds after which a reset is forgotten. Java's clients need ten seconds, others one
pull."""


class _Reset(NamedTuple):
    offset: int
    until: float
    is_committed: bool


class PendingResets:
    """The resets that groups have not followed yet; false if there are none. ``now`` gives the
    seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._resets: dict[tuple[str, str, int], _Reset] = {}
        self._forget_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._resets)

    def begin(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A reset to ``offset`` is being committed. A later commit of a member would undo it."""
        self._note(group, topic, queue_id, offset, is_committed=False)

    def add(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A reset to ``offset`` is committed."""
        self._note(group, topic, queue_id, offset, is_committed=True)

    def _note(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_committed: bool
    ) -> None:
        now = self._now()
        if now >= self._forget_at:  # seldom: a topic may have thousands of queues
            self._forget_at = now + RESET_SECONDS
            self._resets = {key: reset for key, reset in self._resets.items() if reset.until > now}
        self._resets[group, topic, queue_id] = _Reset(offset, now + RESET_SECONDS, is_committed)

    def give_up(self, group: str, topic: str, queue_id: int) -> None:
        """A reset has failed."""
        self._resets.pop((group, topic, queue_id), None)

    def is_pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of the group in this queue is pending."""
        reset = self._resets.get((group, topic, queue_id))
        return reset is not None and reset.until > self._now()

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """Ends the reset of the group in this queue: returns the new offset, or None without a
        reset."""
        key = (group, topic, queue_id)
        reset = self._resets.get(key)
        if reset is None or not reset.is_committed:
            return None
        del self._resets[key]
        return reset.offset if reset.until > self._now() else None

    def clear(self) -> None:
        """Forgets all resets: this node leads no more."""
        self._resets.clear()


TO_THE_END = -1
"""A timestamp that stands for the end of the queue."""


class ResetRequest(NamedTuple):
    """A reset of a group in the queues of a topic."""

    group: str
    topic: str
    queue_ids: Sequence[int]
    timestamp_ms: int
    """The target: the first message that is not older; or :data:`TO_THE_END`."""
    offset: int = -1
    """The target instead of the time, unless negative."""
    force: bool = False
    """Moves the group forward, too; otherwise only back."""


Done: TypeAlias = Callable[[Mapping[int, int] | None, Refusal | StoreError | None], None]
"""Called once: with the new offset of each queue, or with the error."""


class OffsetResetter:
    """Resets offsets, on the leader."""

    def __init__(
        self,
        *,
        batcher: Batcher,
        reader: MessageReader,
        lookup: MessageLookup,
        pending: PendingResets,
        long_polling: LongPolling,
    ) -> None:
        self.batcher = batcher
        self.reader = reader
        self.lookup = lookup
        self.pending = pending
        self.long_polling = long_polling

    def reset(self, request: ResetRequest, done: Done) -> None:
        """Starts a reset. ``done`` is called once the offsets are committed, before held pulls run
        again."""
        reset = OffsetReset(self, request, done)
        topic, offset = request.topic, request.offset
        for queue_id in request.queue_ids:
            first, end = self.reader.offsets(topic, queue_id)
            if offset >= 0:
                reset.found(queue_id, min(max(offset, first), end), None)
            elif request.timestamp_ms == TO_THE_END:
                reset.found(queue_id, end, None)
            else:
                self.lookup.search_time(
                    topic, queue_id, request.timestamp_ms, "lower", partial(reset.found, queue_id)
                )


class OffsetReset:
    """One reset in progress."""

    def __init__(self, resetter: OffsetResetter, request: ResetRequest, done: Done) -> None:
        self._resetter = resetter
        self._request = request
        self._done = done
        self._group_was_known = resetter.batcher.group(request.group) is not None
        self._waits_for = len(request.queue_ids)
        self._offsets: dict[int, int] = {}
        self._failure: Refusal | StoreError | None = None

    def found(self, queue_id: int, offset: int, error: StoreError | None) -> None:
        """Takes the target of one queue. Commits once all queues have theirs."""
        self._offsets[queue_id] = offset
        if error is not None:
            self._failure = error
        self._waits_for -= 1
        if self._waits_for == 0:
            self._commit(force=self._request.force)

    def _commit(self, *, force: bool) -> None:
        if self._failure is not None:
            self._done(None, self._failure)
            return
        group, topic = self._request.group, self._request.topic
        batcher, pending = self._resetter.batcher, self._resetter.pending
        if batcher.topic(topic) is None:  # deleted while the targets were looked up
            self._done(None, UnknownTopicError(f"the topic {topic} does not exist"))
            return
        if self._group_was_known and batcher.group(group) is None:
            self._done(None, UnknownGroupError(f"the group {group} does not exist"))
            return
        try:
            check_offset_quota(batcher, group, topic, list(self._offsets))
        except QuotaExceededError as error:
            self._done(None, error)
            return
        if not force:
            for queue_id, offset in self._offsets.items():
                consumed = batcher.offset(group, topic, queue_id)
                if consumed is not None:
                    self._offsets[queue_id] = min(offset, consumed)
        self._waits_for = len(self._offsets)
        for queue_id, offset in self._offsets.items():
            try:
                moves = reset_commands(batcher, group, topic, queue_id, offset)
                batcher.add_in_one_entry((), moves, self._committed)
            except REFUSALS as error:
                self._committed(error)
            else:
                pending.begin(group, topic, queue_id, offset)

    def _committed(self, error: Refusal | None) -> None:
        self._failure = error or self._failure
        self._waits_for -= 1
        if self._waits_for:
            return
        group, topic, pending = self._request.group, self._request.topic, self._resetter.pending
        moved = dict(sorted(self._offsets.items()))
        if self._failure is not None:
            for queue_id in moved:
                pending.give_up(group, topic, queue_id)
            self._done(None, self._failure)
            return
        for queue_id, offset in moved.items():
            pending.add(group, topic, queue_id, offset)
        self._done(moved, None)
        for queue_id in moved:
            self._resetter.long_polling.wake(topic, queue_id)


def reset_commands(
    batcher: Batcher, group: str, topic: str, queue_id: int, offset: int
) -> Sequence[Command]:
    """The commands of a reset. They forget the group's POP deliveries in the queue, because an
    offset alone never moves a POP group back."""
    moves: list[Command] = [CommitOffset(group, topic, queue_id, offset)]
    if batcher.pop_queue((group, topic, queue_id)) is not None:
        moves.insert(0, PopForget(group, topic, queue_id))
    return moves
