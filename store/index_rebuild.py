"""Making ConsumeQueues and key index again from the log, where they are lost as a whole.

The rows lie ready made in the entries (``store/message/batch.py``), so this is reading the log
once. What is made is what the newest checkpoint covers; the entries behind it are applied as at any
start. Memory is bounded: rows are written whenever enough of them are gathered. An entry that has
rotted is for the peers to put back; then it goes on there.
"""

from __future__ import annotations

from store.errors import (
    CorruptBatchError,
    DamagedError,
    DamagedLogError,
    DiskFullError,
    FatalDiskError,
)
from store.index.consume_queue import BARRIER_QUEUES, ROW_SIZE, ROWS_PER_FILE, ConsumeQueues
from store.index.key_index import KeyIndex
from store.io.atomic_file import replace_file
from store.io.filesystem import FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry, EntryKind
from store.message.batch import decode_batch
from store.recovery.snapshot_install import DERIVED, REBUILD_NAME
from store.replica import ReplicaStore
from store.state.machine_state import QueueLength, decode_machine_state

READ_BYTES = 4 << 20
GATHERED_BYTES = 16 << 20


def request_rebuild(fs: FileSystem, directory: str) -> None:
    """Durably notes that the derived files must be made again at the next start."""
    replace_file(fs, f"{directory}/state", REBUILD_NAME, b"")


def rebuild_derived(
    fs: FileSystem, directory: str, store: ReplicaStore, rows_per_file: int = ROWS_PER_FILE
) -> bool:
    """Makes them again if that was requested; returns whether it was. Blocks.

    ``rows_per_file``: of a ConsumeQueue. See :meth:`Rebuild.run`.
    """
    return Rebuild(fs, directory, rows_per_file).run(store)


class Rebuild:
    """Making them again, where the log may have to be mended in between."""

    def __init__(self, fs: FileSystem, directory: str, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._fs = fs
        self._rows_per_file = rows_per_file
        self._directory = directory
        self._rebuilder: _Rebuilder | None = None
        self._index = 0  # of the next entry
        self._last_index = -1
        self._before: Entry | None = None

    def run(self, store: ReplicaStore) -> bool:
        """Makes them again if that was requested; returns whether it was. Blocks.

        A crash in between leaves the request, and all begins anew. Raises
        :class:`~store.errors.DamagedLogError` where an entry is not whole: once it is, the next
        call goes on there, with the store opened anew. Raises
        :class:`~store.errors.DiskFullError` where there is no room, and
        :class:`~store.errors.FatalDiskError` where the disk fails.
        """
        fs, directory = self._fs, self._directory
        request = f"{directory}/state/{REBUILD_NAME}"
        if not fs.exists(request):
            return False
        try:
            self._make(store)
            fs.remove(request)
            fs.sync_directory(f"{directory}/state")
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                raise DiskFullError(f"no room for derived files: {error.filename}") from error
            raise FatalDiskError(f"derived files could not be made again: {error}") from error
        return True

    def _make(self, store: ReplicaStore) -> None:
        checkpoint = store.recovered.checkpoint
        last_index = -1 if checkpoint is None else checkpoint.index
        if self._rebuilder is None or last_index != self._last_index:
            for name in DERIVED:
                self._fs.remove_tree(f"{self._directory}/{name}")
            self._fs.sync_directory(self._directory)
            if checkpoint is None:
                return
            state = decode_machine_state(checkpoint.state)
            self._rebuilder = _Rebuilder(
                self._fs, self._directory, state.queues, self._rows_per_file
            )
            self._index, self._last_index = store.first_index, last_index
            self._before = None
        while self._index <= last_index:
            for entry in self._read(store):
                self._rebuilder.add(entry)
                self._before, self._index = entry, entry.index + 1
        self._rebuilder.write()

    def _read(self, store: ReplicaStore) -> list[Entry]:
        """The next entries."""
        try:
            return store.read_entries(self._index, self._last_index, READ_BYTES)
        except DamagedError:
            checked = store.check_entries(self._index, self._last_index, READ_BYTES)
        damaged = min(checked.damage, default=checked.next_index)
        if damaged > self._index:
            return [entry for entry in checked.entries if entry.index < damaged]
        if store.repair_row(damaged):
            return []  # its entry is whole, and found now
        raise self._damage(store, checked.damage[damaged])

    def _damage(self, store: ReplicaStore, error: DamagedError) -> DamagedLogError:
        damage = DamagedLogError(error.path, error.position, error.what)
        damage.index = self._index
        damage.commit_index = damage.known_index = damage.applied_index = self._last_index
        damage.durable_position = store.end_position
        if self._before is not None:
            damage.end, damage.chain_crc = self._before.end, self._before.chain_crc
        else:
            damage.end = store.first_position
            damage.chain_crc = None if self._index else 0
        return damage


class _Rebuilder:
    def __init__(
        self, fs: FileSystem, directory: str, lengths: list[QueueLength], rows_per_file: int
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._queues = ConsumeQueues(fs, f"{directory}/consumequeue", rows_per_file=rows_per_file)
        self._keys = KeyIndex(fs, f"{directory}/keyindex")
        self._lengths = {(length.topic, length.queue_id): length for length in lengths}
        self._rows: dict[tuple[str, int], tuple[int, bytearray]] = {}
        self._key_rows = bytearray()
        self._gathered = 0

    def add(self, entry: Entry) -> None:
        if entry.kind is not EntryKind.DATA:
            return
        try:
            batch = decode_batch(entry.body)
        except CorruptBatchError as error:
            raise DamagedError(f"entry {entry.index}", 0, str(error)) from error
        for run in batch.runs:
            length = self._lengths.get((run.topic, run.queue_id))
            if length is None:
                continue
            first = max(run.first_offset, length.first_offset)
            end = min(run.first_offset + run.count, length.end_offset)
            if first < end:
                row = run.first_row + first - run.first_offset
                self._take(length, first, batch.rows[row * ROW_SIZE :][: (end - first) * ROW_SIZE])
        self._key_rows += batch.key_rows
        self._gathered += len(batch.key_rows)
        if self._gathered >= GATHERED_BYTES:
            self.write()

    def _take(self, length: QueueLength, first: int, rows: memoryview) -> None:
        _, gathered = self._rows.setdefault((length.topic, length.queue_id), (first, bytearray()))
        gathered += rows
        self._gathered += len(rows)

    def write(self) -> None:
        few = len(self._rows) < BARRIER_QUEUES
        for (topic, queue_id), (first, rows) in sorted(self._rows.items()):
            self._queues.get_or_create(topic, queue_id).write(first, bytes(rows), sync=few)
        if not few:
            self._fs.sync_all(f"{self._directory}/consumequeue")
        if self._key_rows:
            self._keys.write(bytes(self._key_rows))
        self._rows = {}
        self._key_rows = bytearray()
        self._gathered = 0
