"""Making ConsumeQueues and key index again from the log, where they are lost as a whole.

The rows lie ready made in the entries (``store/message/batch.py``), so this is reading the log
once. What is made is what the newest checkpoint covers; the entries behind it are applied as at any
start. Memory is bounded: rows are written whenever enough of them are gathered.

An entry may be damaged. Its rows stay zeros in the ConsumeQueues, which no read takes for rows, and
no file of the key index reaches across its place. Once the entry is whole again, the scrub finds
that its rows are missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.errors import CorruptBatchError, DamagedError, DiskFullError, FatalDiskError
from store.index.consume_queue import BARRIER_QUEUES, ROW_SIZE, ROWS_PER_FILE, ConsumeQueues
from store.index.key_index import KeyIndex
from store.io.atomic_file import replace_file
from store.io.filesystem import Bytes, FileSystem
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

    ``rows_per_file``: of a ConsumeQueue. A crash in between leaves the request, and all begins
    anew. Raises :class:`~store.errors.DiskFullError` where there is no room, and
    :class:`~store.errors.FatalDiskError` where the disk fails.
    """
    request = f"{directory}/state/{REBUILD_NAME}"
    if not fs.exists(request):
        return False
    try:
        _make(fs, directory, store, rows_per_file)
        fs.remove(request)
        fs.sync_directory(f"{directory}/state")
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise DiskFullError(f"no room for derived files: {error.filename}") from error
        raise FatalDiskError(f"derived files could not be made again: {error}") from error
    return True


def _make(fs: FileSystem, directory: str, store: ReplicaStore, rows_per_file: int) -> None:
    for name in DERIVED:
        fs.remove_tree(f"{directory}/{name}")
    fs.sync_directory(directory)
    checkpoint = store.recovered.checkpoint
    if checkpoint is None:
        return
    state = decode_machine_state(checkpoint.state)
    rebuilder = _Rebuilder(fs, directory, state.queues, rows_per_file)
    following = store.first_index
    for entry in _whole_entries(store, checkpoint.index):
        if entry.index != following:
            rebuilder.leave_out()
        rebuilder.add(entry)
        following = entry.index + 1
    if following <= checkpoint.index:
        rebuilder.leave_out()
    rebuilder.end()


def _whole_entries(store: ReplicaStore, last_index: int) -> Iterator[Entry]:
    """The entries up to ``last_index`` but for those that are damaged."""
    index = store.first_index
    while index <= last_index:
        try:
            entries = store.read_entries(index, last_index, READ_BYTES)
            following = entries[-1].index + 1
        except DamagedError:
            checked = store.check_entries(index, last_index, READ_BYTES)
            if [place for place in checked.damage if store.repair_row(place)]:
                continue  # these entries are whole, and found now
            entries, following = checked.entries, checked.next_index
        yield from entries
        index = following


class _Rebuilder:
    def __init__(
        self, fs: FileSystem, directory: str, lengths: list[QueueLength], rows_per_file: int
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._queues = ConsumeQueues(fs, f"{directory}/consumequeue", rows_per_file=rows_per_file)
        self._keys = KeyIndex(fs, f"{directory}/keyindex")
        self._lengths = {(length.topic, length.queue_id): length for length in lengths}
        self._ends: dict[tuple[str, int], int] = {}
        self._incomplete = False
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

    def leave_out(self) -> None:
        """Entries are damaged. A file of the key index ends there."""
        self.write()
        self._incomplete = True

    def end(self) -> None:
        """All entries were added. Where none was left out, missing rows are an error, which the
        start finds."""
        if self._incomplete:
            for length in self._lengths.values():
                self._take(length, length.end_offset, b"")
        self.write()

    def _take(self, length: QueueLength, first: int, rows: Bytes) -> None:
        """Rows of a queue from offset ``first`` on; zeros for those that were left out."""
        queue = (length.topic, length.queue_id)
        end = self._ends.get(queue, length.first_offset if self._incomplete else first)
        missing = bytes((first - end) * ROW_SIZE)
        if not missing and not rows:
            return
        _, gathered = self._rows.setdefault(queue, (end, bytearray()))
        gathered += missing
        gathered += rows
        self._ends[queue] = first + len(rows) // ROW_SIZE
        self._gathered += len(missing) + len(rows)

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
