"""Making ConsumeQueues and key index again from the log, where they are lost as a whole.

The rows lie ready made in the entries (``store/batch.py``), so this is reading the log once. What
is made is what the newest checkpoint covers; the entries behind it are applied as at any start.
Memory is bounded: rows are written whenever enough of them are gathered.
"""

from __future__ import annotations

from store.batch import decode_batch
from store.commitlog import OUT_OF_SPACE
from store.consumequeue import BARRIER_QUEUES, ROW_SIZE, ROWS_PER_FILE, ConsumeQueues
from store.entry import Entry, EntryKind
from store.errors import CorruptBatchError, DamagedError, DiskFullError, FatalDiskError
from store.filesystem import FileSystem
from store.keyindex import KeyIndex
from store.machinestate import QueueLength, decode_machine_state
from store.refill import DERIVED, REBUILD_NAME
from store.replica import ReplicaStore
from store.wholefile import replace_file

READ_BYTES = 4 << 20
GATHERED_BYTES = 16 << 20


def request_rebuild(fs: FileSystem, directory: str) -> None:
    """Durably notes that the derived files must be made again at the next start."""
    replace_file(fs, f"{directory}/state", REBUILD_NAME, b"")


def rebuild_derived(
    fs: FileSystem, directory: str, store: ReplicaStore, rows_per_file: int = ROWS_PER_FILE
) -> bool:
    """Makes them again if that was requested; returns whether it was. Blocks.

    ``rows_per_file``: of a ConsumeQueue.

    A crash in between leaves the request, and all begins anew. Raises
    :class:`~store.errors.DamagedError` where the log cannot be read,
    :class:`~store.errors.DiskFullError` where there is no room, and
    :class:`~store.errors.FatalDiskError` where the disk fails.
    """
    request = f"{directory}/state/{REBUILD_NAME}"
    if not fs.exists(request):
        return False
    try:
        _rebuild(fs, directory, store, rows_per_file)
        fs.remove(request)
        fs.sync_directory(f"{directory}/state")
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise DiskFullError(f"no room for derived files: {error.filename}") from error
        raise FatalDiskError(f"derived files could not be made again: {error}") from error
    return True


def _rebuild(fs: FileSystem, directory: str, store: ReplicaStore, rows_per_file: int) -> None:
    for name in DERIVED:
        fs.remove_tree(f"{directory}/{name}")
    fs.sync_directory(directory)
    checkpoint = store.recovered.checkpoint
    if checkpoint is None:
        return
    state = decode_machine_state(checkpoint.state)
    rebuilder = _Rebuilder(fs, directory, state.queues, rows_per_file)
    index = store.first_index
    while index <= checkpoint.index:
        for entry in store.read_entries(index, checkpoint.index, READ_BYTES):
            rebuilder.add(entry)
            index = entry.index + 1
    rebuilder.write()


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
