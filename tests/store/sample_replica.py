"""Makes a small replica with messages, as a broker does, for the tests of the checker."""

from __future__ import annotations

import json

import msgpack

from broker.state.broker_state import BrokerState
from broker.state.commands import StoreRequests, decode_commands
from simulator.engine.disk import SimulatedFileSystem
from store.index.consume_queues import ConsumeQueues
from store.index.key_index import KeyIndex
from store.io.filesystem import Bytes, FileSystem
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry
from store.log.layout import next_position, segment_start
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import PendingMessage, make_pending_message
from store.replica import ReplicaStore, StoreConfig
from store.state.checkpoint import Checkpoint
from store.state.machine_state import MachineState, QueueLength, encode_machine_state

GROUP = "broker-a"
SEGMENT_SIZE = 8192
ROWS_PER_FILE = 20
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
STORED_MS = 1_700_000_000_001


def message(number: int, topic: str = "orders", size: int = 20) -> PendingMessage:
    """A message with a tag and two keys, which follow from its number."""
    properties = f"TAGS\x01tag{number % 3}\x02KEYS\x01k{number} all\x02UNIQ_KEY\x01u{number}\x02"
    return make_pending_message(
        topic,
        bytes([number % 251]) * size,
        properties.encode(),
        born_timestamp=STORED_MS - 1,
        born_host=HOST,
    )


class Replica:
    """An open replica. Committed entries are applied at once."""

    def __init__(
        self, fs: FileSystem, node: str = "n0", incarnation: int = 0, group: str = GROUP
    ) -> None:
        self.fs = fs
        self.node = node
        self.directory = f"/data/{group}/{node}"
        config = StoreConfig(
            group,
            node,
            segment_size=SEGMENT_SIZE,
            min_free_bytes=0,
            index_rows_per_file=8,
            incarnation=incarnation,
        )
        self.store = ReplicaStore.open(fs, self.directory, config)
        self.queues = ConsumeQueues(
            fs, f"{self.directory}/consumequeue", rows_per_file=ROWS_PER_FILE
        )
        self.keys = KeyIndex(fs, f"{self.directory}/keyindex")
        self.entries: list[Entry] = []
        self.expired_position = 0
        self.segment_times: dict[int, int] = {}
        self.stored_ms = 0
        self.broker = BrokerState()
        self.broker_bytes: bytes | None = None
        """The broker state of checkpoints; a test may change it."""
        self.configuration = b""
        self.term = max(1, self.store.recovered.term)
        self.store.save_hard_state(self.term, "n0")

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def new_term(self) -> None:
        self.term += 1
        self.store.save_hard_state(self.term, "n0")

    def append(self, kind: EntryKind, parts: list[Bytes], position: int) -> Entry:
        chain = self.entries[-1].chain_crc if self.entries else 0
        entry = build_entry(kind, len(self.entries), self.term, position, chain, parts)
        self.take(entry)
        return entry

    def take(self, entry: Entry) -> None:
        """Appends an entry."""
        self.store.append([entry])
        self.store.sync()
        self.entries.append(entry)

    def no_op(self) -> Entry:
        return self.append(EntryKind.NO_OP, [], next_position(self.end, HEADER_SIZE, SEGMENT_SIZE))

    def configure(self, voters: tuple[str, ...]) -> Entry:
        """Commits an entry that says who the members are."""
        document = {
            "addresses": {},
            "incarnations": {},
            "learners": [],
            "old_voters": [],
            "version": 1,
            "voters": voters,
        }
        self.configuration = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        size = HEADER_SIZE + len(self.configuration)
        position = next_position(self.end, size, SEGMENT_SIZE)
        return self.append(EntryKind.CONFIGURATION, [self.configuration], position)

    def send(self, runs: list[QueueRun], commands: list[list[object]] | None = None) -> Entry:
        """Commits messages and commands, and applies them."""
        packed = msgpack.packb(commands) if commands else b""
        size = sum(map(len, encode_batch(0, STORED_MS, HOST, runs, packed)))
        position = next_position(self.end, HEADER_SIZE + size, SEGMENT_SIZE)
        parts = encode_batch(position, STORED_MS, HOST, runs, packed)
        entry = self.append(EntryKind.DATA, parts, position)
        self.apply(entry)
        return entry

    def put(self, topic: str, queue_id: int, count: int, *, first: int = 0) -> Entry:
        """Sends ``count`` messages to one queue."""
        offset = self.queues.get_or_create(topic, queue_id).end_offset
        messages = [message(first + number, topic) for number in range(count)]
        return self.send([QueueRun(topic, queue_id, offset, messages)])

    def apply(self, entry: Entry) -> None:
        if entry.kind is EntryKind.CONFIGURATION:
            self.configuration = bytes(entry.body)
        if entry.kind is not EntryKind.DATA:
            return
        batch = decode_batch(entry.body)
        if batch.runs:
            self.stored_ms = STORED_MS
        self.broker.store_timestamp_ms = self.stored_ms
        self.segment_times[segment_start(entry.position, SEGMENT_SIZE)] = self.stored_ms
        for run in batch.runs:
            rows = batch.rows_of(run)
            self.queues.get_or_create(run.topic, run.queue_id).append(run.first_offset, rows)
        self.keys.append(batch.key_rows)
        for each in decode_commands(batch.commands):
            self.broker.apply(each)
            if isinstance(each, StoreRequests):
                self.broker.requests.add(entry.position, each.keys)
        for command in msgpack.unpackb(batch.commands) if len(batch.commands) else []:
            if command[0] == "delete-topic":
                for queue in self.queues.all():
                    if queue.topic == command[1]:
                        queue.first_offset = queue.end_offset
            elif command[0] == "expire":
                self.expired_position = command[1]
                kept = segment_start(command[1], SEGMENT_SIZE)
                times = self.segment_times.items()
                self.segment_times = {start: ms for start, ms in times if start >= kept}
                for queue in self.queues.all():
                    queue.first_offset = queue.offset_at(command[1])
                self.keys.expire(command[1])
                self.keys.release(command[1])

    def flush(self) -> None:
        """Writes the derived files, as for a checkpoint, but saves no checkpoint."""
        for flush in (self.queues.begin_flush(), self.keys.begin_flush()):
            if flush is not None:
                flush.run()
                flush.finish()

    def lengths(self) -> list[QueueLength]:
        return [QueueLength(*length) for length in self.queues.lengths()]

    def checkpoint(self, queues: list[QueueLength] | None = None) -> None:
        """Saves a checkpoint of the last entry."""
        self.flush()
        entry = self.entries[-1]
        starts: list[tuple[int, int]] = []
        for earlier in self.entries:
            if not starts or starts[-1][0] != earlier.term:
                starts.append((earlier.term, earlier.index))
        state = MachineState(
            self.broker.to_bytes() if self.broker_bytes is None else self.broker_bytes,
            queues or self.lengths(),
            self.segment_times,
            self.expired_position,
            entry.end,
        )
        self.store.save_checkpoint(
            Checkpoint(
                index=entry.index,
                end_position=entry.end,
                chain_crc=entry.chain_crc,
                term=entry.term,
                term_starts=tuple(starts),
                commit_index=entry.index,
                state=encode_machine_state(state),
                configuration=self.configuration,
            )
        )

    def mark(self, index: int | None = None) -> None:
        """Marks the log as durable and committed up to an entry, the last one by default."""
        entry = self.entries[-1 if index is None else index]
        assert self.store.save_mark(entry.index, entry.end, entry.chain_crc, entry.index)

    def close(self) -> None:
        self.store.close()


def write_replica(fs: SimulatedFileSystem, node: str = "n0") -> Replica:
    """A stopped replica with two checkpoints, several files of each kind, and a tail.

    Entry 0 is a no-op; entries 1 to 40 have three messages to two queues each, in two terms;
    the checkpoint is on entry 30, the mark on entry 37.
    """
    replica = Replica(fs, node)
    replica.no_op()
    for number in range(1, 41):
        if number == 21:
            replica.new_term()
        runs = [
            QueueRun("orders", 0, 2 * number - 2, [message(number), message(1000 + number)]),
            QueueRun("bills", number % 2, (number - 1) // 2, [message(number, "bills", 100)]),
        ]
        replica.send(runs)
        if number in (15, 30):
            replica.checkpoint()
        if number == 37:
            replica.mark()
    replica.close()
    return replica
