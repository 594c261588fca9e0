"""The effects of a committed entry on every replica: the broker as a state machine of the log.

Applying costs per entry and per queue in it, not per message: the entry has the rows for
ConsumeQueues and key index (``store/message/batch.py``). Topics, offsets and the rest are in
:class:`~broker.state.broker_state.BrokerState`. A checkpoint covers both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from struct import Struct
from typing import ClassVar, TypeAlias

from broker.state.broker_state import BrokerState
from broker.state.command_features import FEATURE_OF
from broker.state.commands import (
    Command,
    DeleteTopic,
    Expire,
    Proof,
    PutSetting,
    PutTopic,
    PutTopicRetention,
    StoreRequests,
    Trim,
    decode_commands,
)
from broker.state.open_transactions import open_transaction_of
from broker.state.queue_expiry import LogSearch, QueueFirsts, first_offsets
from broker.state.recent_entries import RecentEntries
from broker.state.state_digests import StateDigests
from broker.state.state_machine_listener import StateMachineListener
from broker.topics_and_groups import HALF_TOPIC, TopicConfig
from dledger.errors import InvariantError, SafetyProperty
from dledger.node.state_machine import Leadership
from store.errors import CorruptBatchError, DiskFullError, StoreError
from store.index.consume_queue import ConsumeQueue
from store.index.consume_queues import ConsumeQueues, QueuesFlush
from store.index.key_index import KeyFlush, KeyIndex
from store.index.queue_rows import ROWS_PER_FILE
from store.io.filesystem import Bytes, FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry, EntryKind
from store.log.layout import segment_start
from store.message.batch import QUEUE_ROW, Batch, decode_batch
from store.message.record import decode_record
from store.message.scheduled_topics import TIMER_TOPIC
from store.replica_reads import ReplicaReads
from store.state.machine_state import (
    MachineState,
    QueueLength,
    decode_machine_state,
    encode_machine_state,
)

_FirstOffsets: TypeAlias = dict[ConsumeQueue, int]
"""The first offset of each queue."""

_SPECIAL_TOPICS = frozenset({TIMER_TOPIC, HALF_TOPIC})
_STORE_TIMESTAMP = Struct(">q")
STORE_TIMESTAMP_AT = 56
"""The byte of the store time in a record with an IPv4 born host, which all records here have."""


class BrokerCheckpointWork:
    """A checkpoint in progress (see :class:`~dledger.node.state_machine.CheckpointWork`)."""

    def __init__(
        self,
        encode: Callable[[], bytes],
        flushes: Sequence[QueuesFlush | KeyFlush],
        saved: Callable[[], None],
    ) -> None:
        self._encode = encode
        self._flushes = flushes
        self._saved = saved

    @cached_property
    def state(self) -> bytes:
        return self._encode()

    def flush(self) -> None:
        """Writes the derived files. Raises :class:`~store.errors.DiskFullError` if there is no
        room: the rows stay in memory, and the next checkpoint writes them again."""
        try:
            for flush in self._flushes:
                flush.run()
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                raise DiskFullError(f"no room for derived files: {error.filename}") from error
            raise

    def finish(self, *, saved: bool) -> None:
        for flush in self._flushes:
            flush.finish()
        if saved:
            self._saved()


class BrokerStateMachine:
    """ConsumeQueues, key index and state: a ``dledger.node.state_machine.StateMachine``."""

    rows_per_file: ClassVar[int] = ROWS_PER_FILE
    """The rows of a ConsumeQueue file."""

    def __init__(self, queues: ConsumeQueues, keys: KeyIndex, segment_size: int) -> None:
        self.state = BrokerState()
        self.keys = keys
        self.listener = StateMachineListener()
        self.log: ReplicaReads | None = None
        """Reads records to check rows before the state depends on them."""
        self.applied_end = 0
        self.expired_position = 0
        self.segment_times: dict[int, int] = {}
        """The store time in ms of the newest message up to the end of a segment, by the segment's
        start."""
        self.changed_index = -1
        """The index of the last applied entry with anything but a proof; -1 for none since the
        start."""
        self._segment_size = segment_size
        self._queues = queues
        self.digests = StateDigests(self, queues)
        self._recent = RecentEntries()
        self._trimmed: dict[ConsumeQueue, None] = {}
        """The queues whose first offset may be above that of the newest checkpoint."""
        self._saved_first_offsets: _FirstOffsets = {}
        """The first offsets that the newest checkpoint has. The files before them are still there,
        because the checkpoint before may need them."""
        self._searches: dict[int, LogSearch] = {}
        """The searches of the log for the next entry, by position."""

    @classmethod
    def open(cls, fs: FileSystem, directory: str, segment_size: int) -> BrokerStateMachine:
        """The machine of the replica whose data is in ``directory``; empty until restored."""
        queues = ConsumeQueues(fs, f"{directory}/consumequeue", rows_per_file=cls.rows_per_file)
        return cls(queues, KeyIndex(fs, f"{directory}/keyindex"), segment_size)

    def add_system_topics(self, topics: Mapping[str, TopicConfig]) -> None:
        """Adds topics that exist by configuration; they stay after a restore."""
        self.state.add_system_topics(topics)

    def tell_damage(self, on_damage: Callable[[int], None]) -> None:
        """Calls ``on_damage`` when a read finds a wrong derived file, with the position of the log
        from which on it must be rebuilt."""

        def told(position: int) -> None:
            on_damage(max(position, self.expired_position))

        self._queues.tell_damage(told)
        self.keys.on_damage = told

    # --- reads

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None if it has had no message since its topic was last created."""
        return self._queues.get(topic, queue_id)

    def queues(self, topic: str) -> Mapping[int, ConsumeQueue]:
        """The topic's queues that have had a message, by id. A topic may have more queues."""
        return self._queues.of_topic(topic)

    def end_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the queue's next message gets."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.end_offset

    def oldest_message(self) -> tuple[str, int, int] | None:
        """Topic, queue id and offset of the first message in the log, or None. Reads a row of each
        queue."""
        oldest: tuple[int, tuple[str, int, int]] | None = None
        for queue in self._queues.all():
            row = queue.read(queue.first_offset, 1)
            if row:
                (position, _size, _code) = QUEUE_ROW.unpack(row)
                if oldest is None or position < oldest[0]:
                    found = queue.topic, queue.queue_id, queue.first_offset
                    oldest = (position, found)
        return None if oldest is None else oldest[1]

    def recent(self, position: int, size: int) -> Bytes | None:
        """Bytes of the newest applied entries, which the log's files may not have yet."""
        return self._recent.read(position, size)

    # --- StateMachine

    def restore(self, state: bytes | None) -> None:
        """See :class:`~dledger.node.state_machine.StateMachine`."""
        self._trimmed = {}  # these were other queues
        if state is None:
            self._queues.restore(())
            self.keys.restore(0)
            self.digests.begin()
            return
        found = decode_machine_state(state)
        system = self.state.system
        self.state = BrokerState.from_bytes(found.broker)
        self.state.add_system_topics(system)
        self.segment_times = found.segment_times
        self.expired_position = found.expired_position
        self.applied_end = found.applied_end
        self._queues.restore(found.queues)
        self.keys.restore(found.applied_end)
        self._saved_first_offsets = {
            queue: queue.first_offset for queue in self._queues.all() if queue.first_offset
        }
        self.digests.begin()
        self.listener.state_restored(self.digests.packed())

    def apply(self, entry: Entry) -> None:
        """See :class:`~dledger.node.state_machine.StateMachine`."""
        if entry.kind is not EntryKind.DATA:
            self.applied_end = entry.end
            return
        try:
            batch = decode_batch(entry.body)
        except CorruptBatchError as error:
            raise _not_applicable(entry.index, error) from error
        commands = decode_commands(batch.commands)
        # Before anything changes: if this finds damage, the entry comes again later.
        expired = [
            first_offsets(self._queues.all(), command.position, self.log, self._searches)
            for command in commands
            if isinstance(command, Expire)
        ]
        self._searches.clear()
        self.applied_end = entry.end
        self._recent.add(entry)
        try:
            if batch.runs:
                self._apply_messages(batch)
        except StoreError as error:
            raise _not_applicable(entry.index, error) from error
        segment = segment_start(entry.position, self._segment_size)
        self.segment_times[segment] = self.state.store_timestamp_ms
        self.digests.segments.dirty[segment] = None
        proof = self._apply_commands(commands, entry, iter(expired)) if commands else None
        if proof is None or batch.runs or len(commands) > 1:
            self.changed_index = entry.index
        if proof is not None:
            self.listener.proof_applied(entry.index, proof, self.digests.packed())

    def begin_checkpoint(self) -> BrokerCheckpointWork:
        """See :class:`~dledger.node.state_machine.StateMachine`."""
        self.digests.fold()
        queues, keys = self._queues.begin_flush(), self.keys.begin_flush()
        broker, times = self.state.to_bytes(), dict(self.segment_times)
        expired_position, applied_end = self.expired_position, self.applied_end

        def encode() -> bytes:
            lengths = [QueueLength(*length) for length in queues.lengths()]
            state = MachineState(broker, lengths, times, expired_position, applied_end)
            return encode_machine_state(state)

        firsts = {queue: queue.first_offset for queue in self._trimmed}
        return BrokerCheckpointWork(
            encode,
            [queues] if keys is None else [queues, keys],
            partial(self._checkpoint_saved, firsts, expired_position),
        )

    def leadership_changed(self, leadership: Leadership) -> None:
        """See :class:`~dledger.node.state_machine.StateMachine`."""
        self.listener.leadership_changed(leadership)

    # --- applying

    def _apply_messages(self, batch: Batch) -> None:
        queue_of = self._queues.get_or_create
        dirty = self.digests.queues.dirty
        all_rows, row_size = batch.rows, QUEUE_ROW.size
        timed = 0
        for topic, queue_id, first_offset, count, first_row in batch.runs:
            first = first_row * row_size
            rows = all_rows[first : first + count * row_size]
            queue = queue_of(topic, queue_id)
            queue.append(first_offset, rows)
            dirty[queue] = None
            if topic in _SPECIAL_TOPICS:
                if topic == TIMER_TOPIC:
                    timed += count
                else:
                    self._open_transactions(first_offset, rows, batch)
        if batch.key_rows:
            self.keys.append(batch.key_rows)
        _position, size, _code = QUEUE_ROW.unpack_from(all_rows, len(all_rows) - row_size)
        last = len(batch.records) - size
        (self.state.store_timestamp_ms,) = _STORE_TIMESTAMP.unpack_from(
            batch.records, last + STORE_TIMESTAMP_AT
        )
        if timed:
            self.state.timer = self.state.timer.stored(timed)
        self.listener.messages_arrived(batch)

    def _open_transactions(self, first_offset: int, rows: Bytes, batch: Batch) -> None:
        start, _size, _code = QUEUE_ROW.unpack_from(batch.rows)
        for offset, (position, _size, _code) in enumerate(
            QUEUE_ROW.iter_unpack(rows), first_offset
        ):
            opened = open_transaction_of(decode_record(batch.records, position - start))
            self.state.transactions[offset] = opened
            self.digests.transactions.dirty[offset] = None
            self.listener.transaction_opened(offset, opened)

    def _apply_commands(
        self, commands: Sequence[Command], entry: Entry, expired: Iterator[QueueFirsts]
    ) -> Proof | None:
        """Returns the last proof among them. ``expired``: for each expiry, the first offsets of
        queues."""
        topics_changed = False
        proof: Proof | None = None
        for feature in {FEATURE_OF.get(type(command)) for command in commands}:
            if feature is not None:
                self.listener.feature_used(feature, entry.index)
        for command in commands:
            if isinstance(command, StoreRequests):
                self.state.requests.add(entry.position, command.keys)
                continue
            if isinstance(command, Proof):
                proof = command
                continue
            self.digests.mark_dirty(command)
            match command:
                case DeleteTopic():
                    self._empty_queues(command.name)
                    topics_changed = True
                case PutTopic() | PutTopicRetention():
                    topics_changed = True
                case Trim():
                    self._trim(command)
                case Expire():
                    self._expire(command.position, next(expired))
            self.state.apply(command)
            if isinstance(command, PutSetting):
                self.listener.setting_changed(command.name)
        if topics_changed:
            self.listener.topics_changed()
        return proof

    def _expire(self, position: int, firsts: QueueFirsts) -> None:
        for queue, first_offset in firsts:
            self._raise_first(queue, first_offset)
        self.keys.expire(position)
        kept = segment_start(position, self._segment_size)
        self.segment_times = {
            start: time for start, time in self.segment_times.items() if start >= kept
        }
        self.expired_position = max(self.expired_position, position)

    def _trim(self, command: Trim) -> None:
        """Replicas use the offset that the leader looked up. Rows and records stay until the log
        expires."""
        queue = self._queues.get(command.topic, command.queue_id)
        if queue is not None:
            self._raise_first(queue, min(command.offset, queue.end_offset))

    def _empty_queues(self, topic: str) -> None:
        """Empties the queues of a deleted topic. If it is created again, they continue at the old
        offsets, so an offset never names two messages."""
        for queue in self._queues.of_topic(topic).values():
            self._raise_first(queue, queue.end_offset)

    def _raise_first(self, queue: ConsumeQueue, first_offset: int) -> None:
        if first_offset > queue.first_offset:
            queue.first_offset = first_offset
            self._trimmed[queue] = None

    def _checkpoint_saved(self, firsts: _FirstOffsets, expired_position: int) -> None:
        """Removes files that no checkpoint needs. The newer checkpoint has replaced the older one
        before.

        Only now may the log be cut, too. A refilled member gets this checkpoint and the log from
        here on, and makes its ConsumeQueues from them. So the log must have every message that the
        checkpoint covers.
        """
        for queue, first_offset in self._saved_first_offsets.items():
            queue.release(first_offset)
        self._saved_first_offsets = firsts
        for queue, first_offset in firsts.items():
            if queue.first_offset == first_offset:
                del self._trimmed[queue]
        if expired_position:
            self.keys.release(expired_position)
            self.listener.expired(expired_position)


def _not_applicable(index: int, error: StoreError) -> InvariantError:
    return InvariantError(SafetyProperty.SAME_STATE, f"entry {index} cannot be applied: {error}")
