"""Group commit: everything that arrives in one turn of the event loop becomes ONE log entry.

Consensus, checksums, syncs and frames cost per entry. So all messages and commands that wait at the
same time share one entry. While fewer than ``PIPELINE_ENTRIES`` entries are in progress, a batch is
proposed at the end of the turn in which it began. Otherwise it grows until one of those entries is
applied. So entries grow under load, and a lone message never waits.

Messages get their offsets when an entry is built (:mod:`broker.group_commit.next_offsets`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from broker.group_commit.next_offsets import NextOffsets
from broker.group_commit.pending_batch import (
    Completion,
    NewMessages,
    PendingBatch,
    PendingQueue,
    QueueMessages,
    Waiter,
    command_bytes,
)
from broker.group_commit.pending_state import LAZY_SECONDS, PendingState, Totals
from broker.group_commit.ports import Applied, Proposer
from broker.group_commit.store_clock import StoreClock
from broker.limits import PRODUCE
from broker.state.commands import Command, DeleteTopic, StoreRequests, encode_commands
from broker.state.deduplication_window import DeduplicationIndex, pack_keys
from dledger.errors import BusyError, NotLeaderError, ProposeError
from dledger.node.state_machine import Leadership
from store.errors import EntryTooLargeError
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE
from store.log.layout import entry_size_max
from store.message.batch import KEY_ROW, QUEUE_ROW, batch_size, encode_batch, pending_bytes
from store.message.record import PendingMessage

PIPELINE_ENTRIES = 2
ENTRY_BYTES = 4 << 20
"""The limit of a batch. A single request above it becomes an entry of its own."""

_pending_bytes_max = PRODUCE.pending_bytes_max  # looked up for each message

_ROW_BYTES, _KEY_ROW_BYTES = QUEUE_ROW.size, KEY_ROW.size
REQUEST_BYTES = 4  # the header of their list fits into the bytes that a run reserves
_RUN_BYTES = 160  # the header of a run with the longest topic, and more
_LAZY_OFFSET_BYTES = 512  # an offset with the longest names


class Batcher:
    """Makes batches of messages and commands on the leader, and reports the outcome of each."""

    def __init__(
        self,
        *,
        node: Proposer,
        applied: Applied,
        loop: asyncio.AbstractEventLoop,
        wall_clock: Callable[[], int],
        store_host: bytes,
        segment_size: int,
        deduplicate: bool = True,
    ) -> None:
        """``wall_clock`` gives milliseconds; ``store_host`` is 4 bytes of IPv4 and an i32 port.

        With ``deduplicate`` an entry lists its requests (:mod:`broker.state.deduplication_window`).
        """
        self._node = node
        self._applied = applied
        self._loop = loop
        self.clock = StoreClock(loop, wall_clock, lambda: applied.state.store_timestamp_ms)
        self._store_host = store_host
        self.request_bytes_max = entry_size_max(segment_size) - HEADER_SIZE - 2 * _RUN_BYTES
        """No entry holds more bytes."""
        self._entry_bytes = min(ENTRY_BYTES, self.request_bytes_max)
        self._deduplicates = deduplicate
        self.deduplication_index = DeduplicationIndex()
        self._leadership: Leadership | None = None
        self.serving = False
        """Whether anything can be added at all."""
        self._open = PendingBatch()
        self._closed: deque[PendingBatch] = deque()
        self._pending_bytes = 0
        self._reserve_for_messages = self._reserve
        self.takes_messages = True
        """Whether the disk has room for messages."""
        self._in_flight: list[PendingBatch] = []
        self._turn_scheduled = False
        self._next_offsets = NextOffsets(applied)
        self._pending_state = PendingState(applied)
        self.topic = self._pending_state.topic
        """A topic as it will be once everything pending is applied."""
        self.group = self._pending_state.group
        """A subscription group as it will be then."""
        self.pop_queue = self._pending_state.pop.queue
        """A group's deliveries by POP, as they will be once everything pending is applied."""
        self.offset = self._pending_state.offset
        """A group's offset, or None, as it will be once everything pending is applied."""
        self.offset_count = self._pending_state.offset_count
        """The number of offsets then, at most."""
        self._lazy_timer: asyncio.TimerHandle | None = None

    # --- for the flows that add messages and commands

    @property
    def pending_bytes(self) -> int:
        """The bytes that wait to be proposed."""
        return self._pending_bytes

    @property
    def term(self) -> int:
        """The term of the present or last known leader; -1 before any."""
        return -1 if self._leadership is None else self._leadership.term

    def check_serving(self) -> None:
        """Raises :class:`~dledger.errors.NotLeaderError` if nothing can be added."""
        if not self.serving:
            raise self._not_leader()

    def check_size(self, size: int) -> None:
        """Raises :class:`~store.errors.EntryTooLargeError` for a size that no entry can hold."""
        if size > self.request_bytes_max:
            raise EntryTooLargeError(size, self.request_bytes_max)

    def totals(self) -> Totals:
        """How many topics and groups there will be once everything pending is applied. Raises
        :class:`~dledger.errors.NotLeaderError`: only the leader knows."""
        self.check_serving()
        return self._pending_state.totals()

    def end_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last message that this leader has proposed for the queue. No
        consumer can be further."""
        return self._next_offsets.end_offset(topic, queue_id)

    def add_message(
        self, topic: str, queue_id: int, message: PendingMessage, waiter: Waiter
    ) -> None:
        """Adds one message. Raises as :meth:`add_messages`."""
        hashes = message.key_hashes
        size = message.size + _ROW_BYTES + _KEY_ROW_BYTES * len(hashes)
        queue = self._queue(topic, queue_id, size + REQUEST_BYTES)
        queue.messages.append(message)
        queue.waiters.append((waiter, 1))
        batch = self._open
        batch.message_bytes += size
        if hashes and self._deduplicates:
            batch.requests.append(hashes[0])
            self.deduplication_index.newer[hashes[0]] = batch.place

    def add_messages(self, new: NewMessages, waiter: Waiter) -> None:
        """Adds messages of one queue and the topics that they create, all in the same entry.

        Raises :class:`~dledger.errors.NotLeaderError`, :class:`~dledger.errors.BusyError`, and
        :class:`~store.errors.EntryTooLargeError` for too much for any entry."""
        topic, queue_id, messages, creates = new
        size = pending_bytes(messages)
        more = REQUEST_BYTES + sum(map(command_bytes, creates))
        queue = self._queue(topic, queue_id, size + more)
        queue.messages.extend(messages)
        queue.waiters.append((waiter, len(messages)))
        batch = self._open
        batch.message_bytes += size
        for command in creates:
            self._put_command(batch, command)
        hashes = messages[0].key_hashes
        if hashes and self._deduplicates:
            batch.requests.append(hashes[0])
            self.deduplication_index.newer[hashes[0]] = batch.place

    def add_barrier(self, completion: Completion) -> None:
        """Calls ``completion`` once all that was added before is applied or refused. Raises as
        :meth:`add_command`."""
        self._reserve(0).completions.append(completion)

    def add_in_one_entry(
        self,
        messages: Sequence[QueueMessages],
        commands: Sequence[Command],
        completion: Completion | None = None,
    ) -> None:
        """Adds messages of any queues and commands, all in the same entry.

        Raises as :meth:`add_messages`; nothing is added then. ``completion`` is called after the
        messages' waiters.
        """
        # The messages of an entry are applied before its commands. A deletion would undo those that
        # came after it, too. So an entry that deletes a topic has no messages.
        deletes = any(isinstance(command, DeleteTopic) for command in commands)
        if deletes:
            self._close_open()
        size = sum(map(command_bytes, commands))
        message_bytes = sum(pending_bytes(to.messages) for to in messages)
        size += message_bytes + _RUN_BYTES * len(messages)
        batch = self._reserve_for_messages(size) if messages else self._reserve(size)
        batch.message_bytes += message_bytes
        for topic, queue_id, added, waiter in messages:
            queue = batch.queues[topic, queue_id]
            queue.messages.extend(added)
            queue.waiters.append((waiter, len(added)))
        for command in commands:
            self._put_command(batch, command)
        if completion is not None:
            batch.completions.append(completion)
        if deletes:
            self._close_open()

    def add_command(self, command: Command, completion: Completion | None = None) -> None:
        """Adds a command. Raises :class:`~dledger.errors.NotLeaderError` or BusyError."""
        self.add_in_one_entry((), (command,), completion)

    def _put_command(self, batch: PendingBatch, command: Command) -> None:
        batch.commands.append(command)
        self._pending_state.add(batch, command)

    def add_lazy_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Adds an offset whose commit nobody waits for. Of several for one queue only the last is
        kept."""
        if not self.serving or self.offset(group, topic, queue_id) == offset:
            return
        self._pending_state.add_lazy_offset(group, topic, queue_id, offset)
        if self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._lazy_due)

    def refuse_messages(self, why: Callable[[int], ProposeError] | None) -> None:
        """Refuses messages because disks are full, or takes them again (None). Commands are
        taken: one of them may make room. ``why`` makes the error for a size."""
        self.takes_messages = why is None
        self._reserve_for_messages = (
            self._reserve if why is None else partial(self._refuse_for_full_disk, why)
        )

    # --- leadership

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new term begins with the applied state. Everything pending in the old term is
        refused."""
        before, self._leadership = self._leadership, leadership
        if leadership.serving and before is not None and before.serving:
            if before.term == leadership.term:
                return
            self._refuse_pending(self._not_leader())
        self.serving = leadership.serving
        if not leadership.serving:
            self._refuse_pending(self._not_leader())
        self._next_offsets.clear()
        self._pending_state.clear(but=self._in_flight)
        self.deduplication_index.clear()
        if leadership.serving and self._deduplicates:
            self.deduplication_index.begin(self._applied.state.requests)

    def close(self) -> None:
        """Refuses everything pending and everything added later."""
        self.serving = False
        self._refuse_pending(self._not_leader())

    def _not_leader(self) -> NotLeaderError:
        return NotLeaderError(None if self._leadership is None else self._leadership.leader)

    def _refuse_pending(self, error: ProposeError) -> None:
        refused = [*self._closed, self._open]
        self._closed.clear()
        self._open = PendingBatch()
        self._pending_bytes = 0
        self._pending_state.clear(but=self._in_flight)
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        for batch in refused:
            batch.fail(error)

    # --- the open batch

    def _queue(self, topic: str, queue_id: int, size: int) -> PendingQueue:
        key = (topic, queue_id)
        batch = self._reserve_for_messages(size)
        queue = batch.queues.get(key)
        if queue is None:
            queue = batch.queues[key]
            batch.bytes += _RUN_BYTES
            self._pending_bytes += _RUN_BYTES
        return queue

    def _reserve(self, size: int) -> PendingBatch:
        """The batch for the next ``size`` bytes; schedules its proposal."""
        if not self.serving:
            self.check_serving()
        if self._pending_bytes + size > _pending_bytes_max:
            raise BusyError(self._pending_bytes, _pending_bytes_max)
        batch = self._open
        if batch.bytes + size > self._entry_bytes:
            batch = self._close_open()
        if size > self.request_bytes_max:
            self.check_size(size)
        batch.bytes += size
        self._pending_bytes += size
        if not self._turn_scheduled:
            self._schedule()
        return batch

    def _close_open(self) -> PendingBatch:
        """Puts nothing more into the open batch. Returns the new one."""
        if self._open:
            self._closed.append(self._open)
            self._open = PendingBatch()
        return self._open

    def _refuse_for_full_disk(self, why: Callable[[int], ProposeError], size: int) -> PendingBatch:
        self.check_serving()
        raise why(size)

    def _schedule(self) -> None:
        self._turn_scheduled = True
        self._loop.call_soon(self._propose_pending)

    def _propose_pending(self) -> None:
        self._turn_scheduled = False
        while self.serving and len(self._in_flight) < PIPELINE_ENTRIES:
            if self._closed:
                batch = self._closed.popleft()
            elif self._open:
                batch, self._open = self._open, PendingBatch()
            else:
                return
            self._propose(batch)

    def _lazy_due(self) -> None:
        self._lazy_timer = None
        if self._closed:  # commits stall, and with each second another batch would wait
            self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._lazy_due)
            return
        while self._pending_state.has_lazy_offsets:  # they may fill more than one entry
            self._take_lazy_offsets(self._open)
            self._close_open()
        if not self._turn_scheduled:
            self._schedule()

    # --- proposing

    def _propose(self, batch: PendingBatch) -> None:
        if self._pending_state.has_lazy_offsets:
            self._take_lazy_offsets(batch)
        self._pending_bytes -= batch.bytes
        timestamp_ms = self.now_ms()
        batch.runs = self._next_offsets.runs_of(batch.queues, timestamp_ms)
        if batch.requests:
            batch.commands.append(StoreRequests(pack_keys(batch.requests)))
            self.deduplication_index.age()
        commands = encode_commands(batch.commands)

        def build(position: int) -> Sequence[Bytes]:
            batch.place.position = position
            return encode_batch(position, timestamp_ms, self._store_host, batch.runs, commands)

        self._in_flight.append(batch)
        try:
            topics = [topic for topic, _ in batch.queues]
            size = batch_size(topics, batch.message_bytes, commands)
            self._node.propose(size, build, partial(self._proposed, batch))
        except ProposeError as error:
            self._in_flight.remove(batch)
            self._next_offsets.give_back(batch.runs)
            batch.fail(error)
            # Later additions may depend on this batch: a message on the topic that it creates.
            self._refuse_pending(error)

    def _take_lazy_offsets(self, batch: PendingBatch) -> None:
        room = max((self._entry_bytes - batch.bytes) // _LAZY_OFFSET_BYTES, 0)
        for command in self._pending_state.take_lazy_offsets(room):
            self._put_command(batch, command)
            batch.bytes += _LAZY_OFFSET_BYTES
            self._pending_bytes += _LAZY_OFFSET_BYTES

    def now_ms(self) -> int:
        """The store time of a record stored now; see
        :class:`~broker.group_commit.store_clock.StoreClock`.
        """
        return self.clock.now_ms()

    def _proposed(self, batch: PendingBatch, error: ProposeError | None) -> None:
        self._in_flight.remove(batch)
        self._pending_state.applied(batch)
        if error is not None:
            self._pending_state.restart_pop([*self._in_flight, *self._closed, self._open])
            batch.fail(error)
        else:
            batch.succeed()
        if not self._turn_scheduled and (self._closed or self._open):
            self._schedule()
