"""What a committed entry does, on every replica: the broker as a state machine of the log.

Applying costs per entry and per queue in it, not per message: the rows for ConsumeQueues and key
index lie ready made in the entry (``store/batch.py``). Topics and offsets are
:class:`~broker.state.BrokerState`; both together are what a checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import msgpack

from broker.commands import Command, DeleteTopic, Expire, PutTopic, decode_commands
from broker.recent import RecentEntries
from broker.state import BrokerState
from dledger.errors import InvariantError
from dledger.statemachine import Leadership
from store.batch import QUEUE_ROW, Batch, decode_batch
from store.consumequeue import ConsumeQueue, ConsumeQueues, QueueFlush
from store.entry import Entry, EntryKind
from store.errors import CorruptBatchError, StoreError
from store.filesystem import Bytes, FileSystem
from store.keyindex import KeyFlush, KeyIndex

CHECKPOINT_STATE_VERSION = 1

_STORE_TIMESTAMP = Struct(">q")
STORE_TIMESTAMP_AT = 56
"""Where a record with an IPv4 born host, and all of ours have one, says when it was stored."""


class MachineListener:
    """What the rest of the broker does when something was applied; by itself nothing."""

    def messages_arrived(self, topic: str, queue_id: int, rows: Bytes) -> None:
        """Messages were added to a queue; ``rows`` are their ConsumeQueue rows."""

    def topics_changed(self) -> None:
        """A topic was created, changed or deleted."""

    def expired(self, position: int) -> None:
        """What lies below ``position`` of the commit log is given up."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """Who leads changed, or whether this node may serve as leader."""


class Checkpointing:
    """A checkpoint in the making (see :class:`~dledger.statemachine.CheckpointWork`)."""

    def __init__(self, state: bytes, flushes: Sequence[QueueFlush | KeyFlush]) -> None:
        self._state = state
        self._flushes = flushes

    @property
    def state(self) -> bytes:
        return self._state

    def flush(self) -> None:
        for flush in self._flushes:
            flush.run()

    def finish(self) -> None:
        for flush in self._flushes:
            flush.finish()


class BrokerStateMachine:
    """ConsumeQueues, key index and state; what ``dledger.statemachine.StateMachine`` asks for."""

    def __init__(
        self, queues: ConsumeQueues, keys: KeyIndex, recent: RecentEntries | None = None
    ) -> None:
        self.state = BrokerState()
        self.keys = keys
        self.listener = MachineListener()
        self.applied_end = 0
        self._queues = queues
        self._recent = recent or RecentEntries()

    @classmethod
    def open(cls, fs: FileSystem, directory: str) -> BrokerStateMachine:
        """The machine of the replica whose data is in ``directory``; empty until restored."""
        return cls(
            ConsumeQueues(fs, f"{directory}/consumequeue"), KeyIndex(fs, f"{directory}/keyindex")
        )

    # --- what others read

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message since its topic was last created."""
        return self._queues.get(topic, queue_id)

    def end_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the queue's next message gets."""
        queue = self._queues.get(topic, queue_id)
        return self.state.retired_end(topic, queue_id) if queue is None else queue.end_offset

    def recent(self, position: int, size: int) -> Bytes | None:
        """Bytes of the newest applied entries, which the log's files may not have yet."""
        return self._recent.read(position, size)

    # --- StateMachine

    def restore(self, state: bytes | None) -> None:
        """See :class:`~dledger.statemachine.StateMachine`."""
        if state is None:
            self._queues.restore(())
            self.keys.restore(0)
            return
        try:
            version, broker_state, lengths, self.applied_end = msgpack.unpackb(state)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise InvariantError(f"the state of the checkpoint cannot be read: {error}") from error
        if version != CHECKPOINT_STATE_VERSION:
            raise InvariantError(
                f"the state of the checkpoint has version {version}, not {CHECKPOINT_STATE_VERSION}"
            )
        self.state = BrokerState.from_bytes(broker_state)
        self._queues.restore(tuple(length) for length in lengths)
        self.keys.restore(self.applied_end)

    def apply(self, entry: Entry) -> None:
        """See :class:`~dledger.statemachine.StateMachine`."""
        self.applied_end = entry.end
        if entry.kind is not EntryKind.DATA:
            return
        self._recent.add(entry)
        try:
            batch = decode_batch(entry.body)
            if batch.runs:
                self._apply_messages(batch)
        except (CorruptBatchError, StoreError) as error:
            raise InvariantError(f"entry {entry.index} cannot be applied: {error}") from error
        if batch.commands:
            self._apply_commands(decode_commands(batch.commands))

    def begin_checkpoint(self) -> Checkpointing:
        """See :class:`~dledger.statemachine.StateMachine`."""
        state: bytes = msgpack.packb(
            (
                CHECKPOINT_STATE_VERSION,
                self.state.to_bytes(),
                self._queues.lengths(),
                self.applied_end,
            )
        )
        keys = self.keys.begin_flush()
        flushes: list[QueueFlush | KeyFlush] = [*self._queues.begin_flush()]
        return Checkpointing(state, flushes if keys is None else [*flushes, keys])

    def leadership_changed(self, leadership: Leadership) -> None:
        """See :class:`~dledger.statemachine.StateMachine`."""
        self.listener.leadership_changed(leadership)

    # --- applying

    def _apply_messages(self, batch: Batch) -> None:
        listener = self.listener
        queues = self._queues
        row_size = QUEUE_ROW.size
        for run in batch.runs:
            first = run.first_row * row_size
            rows = batch.rows[first : first + run.count * row_size]
            queue = queues.get(run.topic, run.queue_id)
            if queue is None:
                queue = self._begin_queue(run.topic, run.queue_id)
            queue.append(run.first_offset, rows)
            listener.messages_arrived(run.topic, run.queue_id, rows)
        if batch.key_rows:
            self.keys.append(batch.key_rows)
        _position, size, _code = QUEUE_ROW.unpack_from(batch.rows, len(batch.rows) - row_size)
        last = len(batch.records) - size
        (self.state.store_timestamp_ms,) = _STORE_TIMESTAMP.unpack_from(
            batch.records, last + STORE_TIMESTAMP_AT
        )

    def _begin_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.get_or_create(topic, queue_id)
        end = self.state.retired_end(topic, queue_id)
        if end:
            queue.restore(end, end)
        return queue

    def _apply_commands(self, commands: Sequence[Command]) -> None:
        topics_changed = False
        for command in commands:
            match command:
                case DeleteTopic():
                    self._delete_queues(command.name)
                    topics_changed = True
                case PutTopic():
                    topics_changed = True
                case Expire(position):
                    self._queues.expire(position)
                    self.keys.expire(position)
                    self.listener.expired(position)
            self.state.apply(command)
        if topics_changed:
            self.listener.topics_changed()

    def _delete_queues(self, topic: str) -> None:
        self.state.retire(
            topic,
            {
                queue_id: end
                for name, queue_id, _first, end in self._queues.lengths()
                if name == topic
            },
        )
        self._queues.delete(topic)
