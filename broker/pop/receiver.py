"""Receives messages on the leader: finds them, adds the commands, makes the handles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from broker.delivery.first_offset import begins_at_end
from broker.delivery.message_reader import MessageReader
from broker.delivery.offset_quota import check_offset_quota
from broker.delivery.replica_selection import ReplicaSelection
from broker.errors import (
    REFUSALS,
    QuotaExceededError,
    UnavailableError,
    UnknownGroupError,
    unavailable,
    unknown_topic,
)
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import Completion
from broker.group_commit.pending_pop import PendingPopQueue
from broker.limits import CONSUME, STATE
from broker.pop.dead_letters import DeadLetters
from broker.pop.pop_request import EVERYTHING, PoppedMessage, PopRequest, PopResult, PopStatus
from broker.pop.receipt_handle import ReceiptHandle, tag_of
from broker.pop.receivable_messages import (
    ReceivableMessageFinder,
    ReceivableMessages,
    Search,
    reconsume_times_of,
    topic_hash,
)
from broker.pop.renewed_receipts import nonce_of, nonces_of, not_renewable, renewable
from broker.retry.attempts import attempts
from broker.state.commands import Command, CommitOffset, PopAck, PopReceive, PopWait
from broker.state.pop_queues import PopDelivery, PopKey, pack_runs, pack_waiting
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import GroupConfig
from dledger.errors import BusyError, ProposeError
from dledger.settle import settle
from store.errors import StoreError
from store.field_checks import I64_MAX
from store.io.filesystem import Bytes

log = logging.getLogger(__name__)

_SKIP_SECONDS = 1.0
"""The interval at which the log gets the cursor of a queue whose messages a filter skips."""


class _Attempt(NamedTuple):
    """One look at the queues for a request."""

    request: PopRequest
    group: GroupConfig
    nonce: int
    now_ms: int

    @property
    def until_ms(self) -> int:
        return self.now_ms + self.request.invisible_ms


class _Received(NamedTuple):
    """The messages of one queue that a request gets, once their command is committed."""

    committed: asyncio.Future[None]
    messages: Sequence[PoppedMessage]
    rest: int = 0


class _Room(NamedTuple):
    """What still fits into the answer to a request."""

    messages: int
    bytes: int
    is_empty: bool = True
    """Whether the answer has no message yet: then one fits whatever its size."""


class _Look(NamedTuple):
    """The result of a look at one queue."""

    received: _Received | None
    room: _Room
    """What is left of the room."""
    full: bool = False
    """Whether the group has too many deliveries there."""
    more: bool = False
    """Whether the filter has skipped messages, and there are more to look at."""


class Taken(NamedTuple):
    """The result of a look at the queues."""

    result: PopResult
    visible_ms: int | None = None
    """When the next delivery becomes visible; a time that is over if a look ended early."""
    committed: Sequence[asyncio.Future[None]] = ()
    """Only then may the messages be given out."""


class Receiver:
    """Finds messages of queues for requests."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        batcher: Batcher,
        replicas: ReplicaSelection,
        dead_letters: DeadLetters,
        broker_name: str,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
    ) -> None:
        self._machine = machine
        self._reader = reader
        self._finder = ReceivableMessageFinder(machine, reader, loop)
        self._batcher = batcher
        self._replicas = replicas
        self._dead_letters = dead_letters
        self._broker_name = broker_name
        self._loop = loop
        self._rng = rng
        self._skipped_at: dict[PopKey, float] = {}
        """When the log last got the cursor of a queue because of skipped messages."""

    async def take(self, request: PopRequest, group: GroupConfig, keys: Sequence[PopKey]) -> Taken:
        """The messages of these queues that can be received now. Their commands are added.

        Raises :class:`~dledger.errors.ProposeError`, :class:`~broker.errors.UnavailableError`,
        :class:`~broker.errors.QuotaExceededError`, and for what is deleted meanwhile
        :class:`~broker.errors.UnknownTopicError` or :class:`~broker.errors.UnknownGroupError`.
        """
        nonce = nonce_of(request) or self._rng.randrange(1, I64_MAX)
        nonce = renewable(nonce, request.client_id) if request.auto_renew else not_renewable(nonce)
        attempt = _Attempt(request, group, nonce, self._batcher.now_ms())
        received: list[_Received] = []
        if request.attempt_id:
            received = [
                each for key in keys if (each := await self._given_before(attempt, key)) is not None
            ]
        full = False
        messages_max = min(max(request.max_messages, 1), CONSUME.pop_messages_max)
        room = _Room(0 if received else messages_max, CONSUME.pop_bytes_max)
        visible_ms: list[int] = []
        for key in keys:
            if room.messages <= 0 or room.bytes <= 0:
                break
            try:
                look = await self._take_from(attempt, key, room)
            except (BusyError, UnavailableError, QuotaExceededError):
                if received:
                    break  # what other queues gave counts as an attempt already
                raise
            full |= look.full
            room = look.room
            if look.received is not None:
                received.append(look.received)
            pending = self._batcher.pop_queue(key)
            next_ms = None if pending is None else pending.next_visible_ms(attempt.now_ms)
            if look.more:
                next_ms = attempt.now_ms
            if next_ms is not None:
                visible_ms.append(next_ms)
        messages = tuple(message for each in received for message in each.messages)
        if messages:
            rest = sum(each.rest for each in received)
            committed = [each.committed for each in received]
            return Taken(PopResult(PopStatus.FOUND, messages, rest), committed=committed)
        status = PopStatus.FULL if full else PopStatus.NOTHING
        return Taken(PopResult(status), min(visible_ms, default=None))

    async def records(self, key: PopKey, offsets: Sequence[int]) -> Sequence[Bytes]:
        """The records of a queue at these offsets. Raises
        :class:`~broker.errors.UnavailableError`."""
        try:
            return await self._finder.records(key, offsets)
        except StoreError as error:
            raise unavailable("the messages cannot be read now", error) from error

    def is_empty(self, key: PopKey) -> bool:
        """Whether the group has nothing to receive in the queue, now or later."""
        first, end = self._reader.offsets(*key[1:])
        pending = self._batcher.pop_queue(key)
        if pending is None:
            return end <= max(first, self._batcher.offset(*key) or 0)
        return end <= pending.next_offset and not len(pending)

    def next_message_ms(self, request: PopRequest, key: PopKey) -> int | None:
        """When the next message of the queue can be received: 0: now, a new one; None: there is
        none."""
        first, end = self._reader.offsets(*key[1:])
        pending = self._batcher.pop_queue(key)
        if pending is None:
            begin = self._batcher.offset(*key)
            return 0 if end > (first if begin is None else max(begin, first)) else None
        if end > pending.next_offset:
            return 0
        now_ms = self._batcher.now_ms()
        visible = pending.visible(now_ms)
        if any(delivery.attempt or not request.fifo for _, delivery in visible):
            return 0
        return pending.next_visible_ms(now_ms)

    async def _given_before(self, attempt: _Attempt, key: PopKey) -> _Received | None:
        """The messages that an earlier try of the request received."""
        pending = self._batcher.pop_queue(key)
        if pending is None:
            return None
        nonces = nonces_of(attempt.nonce) if attempt.request.auto_renew else {attempt.nonce}
        offsets = pending.received_with(nonces, attempt.now_ms)
        if not offsets:
            return None
        deliveries = [pending.queue.deliveries[offset] for offset in offsets]
        committed = committing(self._batcher.add_barrier)
        records = await self.records(key, offsets)
        given = zip(offsets, records, deliveries, strict=False)
        return _Received(committed, [self._popped(attempt, key, *each) for each in given])

    async def _take_from(self, attempt: _Attempt, key: PopKey, room: _Room) -> _Look:
        """The messages of one queue for the request."""
        batcher, request = self._batcher, attempt.request
        is_retry = key[1] != request.topic
        while True:
            pending = self._cursor(attempt, key)
            async with pending.lock:
                batcher.check_serving()
                if batcher.pop_queue(key) is not pending:
                    continue
                deliveries = min(
                    STATE.pop_queue_deliveries_max - len(pending),
                    STATE.pop_deliveries_max - self._machine.state.pop.delivery_count,
                )
                search = Search(
                    key,
                    EVERYTHING if is_retry else request.filter,
                    request.fifo,
                    attempt.group,
                    attempt.now_ms,
                    room.messages,
                    deliveries,
                    topic_hash(request.topic) if is_retry else 0,
                )
                before = pending.next_offset
                try:
                    receivable = await self._finder.find(search, pending)
                except StoreError as error:
                    raise unavailable("the messages cannot be read now", error) from error
                batcher.check_serving()
                if (
                    batcher.pop_queue(key) is not pending
                    or pending.next_offset != before
                    or not receivable.is_still_in(pending)
                ):
                    continue
                bytes_left = receivable.fit(room.bytes, request.size_of, alone=room.is_empty)
                got, again = self._give(attempt, key, pending, receivable)
                if got is not None:
                    messages_left = room.messages - len(got.messages)
                    return _Look(got, _Room(messages_left, bytes_left, is_empty=False))
                if not again:
                    skipped = before < receivable.next_offset < self._reader.offsets(*key[1:])[1]
                    left = room._replace(bytes=bytes_left)
                    return _Look(None, left, full=deliveries <= 0, more=skipped)

    def _cursor(self, attempt: _Attempt, key: PopKey) -> PendingPopQueue:
        """The group's deliveries in the queue. The first time, the cursor is written to the log:
        otherwise the next request could begin elsewhere."""
        batcher, (group, topic, queue_id) = self._batcher, key
        first, end = self._reader.offsets(topic, queue_id)
        pending = batcher.pop_queue(key)
        if pending is None:
            if batcher.topic(topic) is None:  # deleted during a read; so may be the group
                raise unknown_topic(topic)
            if batcher.group(group) is None:
                raise UnknownGroupError(f"subscription group not exist, {group}")
            offset = batcher.offset(*key)
            if offset is None:
                check_offset_quota(batcher, group, topic, (queue_id,))
                offset = first
                if attempt.request.from_end and begins_at_end(
                    self._machine, self._replicas, topic, queue_id
                ):
                    offset = end
            batcher.add_command(PopReceive(*key, offset, b"", 0, 0, attempt.now_ms))
            return self._cursor(attempt, key)
        if pending.queue.committed_offset < first:
            batcher.add_command(CommitOffset(*key, first))  # expired messages count as consumed
        return pending

    def _give(
        self,
        attempt: _Attempt,
        key: PopKey,
        pending: PendingPopQueue,
        receivable: ReceivableMessages,
    ) -> tuple[_Received | None, bool]:
        """Adds the commands. Also returns whether to look again at once."""
        buried = self._bury(attempt, key, receivable)
        commands: list[Command] = []
        next_offset = receivable.next_offset
        if receivable.unwanted:
            commands.append(PopAck(*key, pack_runs(receivable.unwanted)))
        if receivable.waiting:
            commands.append(PopWait(*key, next_offset, pack_waiting(receivable.waiting)))
        offsets = [each.offset for each in receivable.receive]
        if offsets or self._skips(key, pending, next_offset):
            runs = pack_runs(offsets)
            times = attempt.until_ms, attempt.now_ms
            commands.append(PopReceive(*key, next_offset, runs, attempt.nonce, *times))
        committed = None
        if commands:
            committed = committing(partial(self._batcher.add_in_one_entry, (), commands))
        pending.skip_to(next_offset)  # unless a refusal of the commands leaves them where they are
        if committed is None or not offsets:
            found_more = receivable.learned or receivable.waiting or receivable.unwanted
            return None, bool(buried or found_more)
        rest = self._reader.offsets(*key[1:])[1] - next_offset
        deliveries = pending.queue.deliveries
        messages = [
            self._popped(attempt, key, each.offset, each.record, deliveries[each.offset])
            for each in receivable.receive
        ]
        return _Received(committed, messages, max(rest, 0)), False

    def _bury(self, attempt: _Attempt, key: PopKey, receivable: ReceivableMessages) -> bool:
        """Stores dead letters; returns whether any was stored. The others are retried with each
        look."""
        buried = False
        for each in receivable.exhausted:
            try:
                self._dead_letters.bury(key, attempt.group, each)
                buried = True
            except (*REFUSALS, StoreError) as error:
                self._batcher.check_serving()
                log.warning("a message waits to become a dead letter: %s", error)
        return buried

    def _skips(self, key: PopKey, pending: PendingPopQueue, next_offset: int) -> bool:
        """Whether to write the cursor to the log, because the filter skipped messages."""
        if next_offset <= pending.queue.next_offset:
            return False
        now = self._loop.time()
        if now < self._skipped_at.get(key, -_SKIP_SECONDS) + _SKIP_SECONDS:
            return False
        if len(self._skipped_at) >= STATE.pop_queue_deliveries_max:
            self._skipped_at.clear()
        self._skipped_at[key] = now
        return True

    def _popped(
        self, attempt: _Attempt, key: PopKey, offset: int, record: Bytes, delivery: PopDelivery
    ) -> PoppedMessage:
        visible_ms = delivery.visible_ms
        invisible_ms = attempt.request.invisible_ms
        delivered_ms = visible_ms - invisible_ms
        _group, topic, queue_id = key
        handle = ReceiptHandle(
            tag_of(delivery.nonce),
            delivered_ms,
            invisible_ms,
            self._broker_name,
            queue_id,
            offset,
            topic != attempt.request.topic,
        )
        got = attempts(reconsume_times_of(record), delivery.attempt)
        told = str(handle), got, delivery.attempt, delivered_ms, visible_ms
        return PoppedMessage(record, topic, queue_id, offset, *told)


def committing(add: Callable[[Completion], object]) -> asyncio.Future[None]:
    """Calls ``add`` with a completion. Returns its future: done once committed, or the refusal.

    The future may have no waiter: a request ends early by the refusal of another command.
    """
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: ProposeError | None) -> None:
        if not committed.done():  # else its waiter is gone
            settle(committed, None, error)
            committed.exception()  # so that asyncio does not log it

    add(done)
    return committed
