"""Rebuilds all ConsumeQueues and the whole key index from the log.

The entries contain the rows (``store/message/batch.py``), so the log is read once. The files are
rebuilt up to the newest checkpoint. Later entries are applied as at any start. Rows are written
as soon as 16 MiB of them are in memory.

A damaged entry is skipped. Its rows are missing. So their blocks stay unsealed, and the scrub
rebuilds them once the entry is repaired.
"""

from __future__ import annotations

from collections.abc import Callable

from store.errors import CorruptBatchError, DamagedError, DiskFullError, FatalDiskError
from store.index.block_seals import ROW_SIZE, Tail, block_of, unsealed
from store.index.consume_queues import BARRIER_QUEUES, ConsumeQueues, state_directory
from store.index.key_index import KeyIndex
from store.index.queue_rows import ROWS_PER_FILE
from store.index.queue_tails import TAILS_NAME, write_tails
from store.io.atomic_file import replace_file
from store.io.filesystem import FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry, EntryKind
from store.message.batch import decode_batch
from store.recovery.snapshot_install import DERIVED, REBUILD_NAME
from store.replica import ReplicaStore
from store.state.machine_state import QueueLength, decode_machine_state

READ_BYTES = 4 << 20
BUFFERED_BYTES_MAX = 16 << 20


def request_rebuild(fs: FileSystem, directory: str) -> None:
    """Durably notes that the derived files must be rebuilt at the next start."""
    replace_file(fs, f"{directory}/state", REBUILD_NAME, b"")


def rebuild_derived(
    fs: FileSystem,
    directory: str,
    store: ReplicaStore,
    rows_per_file: int = ROWS_PER_FILE,
    go_on: Callable[[], None] = lambda: None,
) -> bool:
    """Rebuilds the derived files if that was requested; returns whether it was. Blocks.

    ``rows_per_file``: of a ConsumeQueue. ``go_on`` is called before each piece of the log, and ends
    the rebuild by raising. Then, and after a crash, the request is still there, and the rebuild
    begins again at the next start. Raises :class:`~store.errors.DiskFullError` if there is no
    room, and :class:`~store.errors.FatalDiskError` if the disk fails.
    """
    request = f"{directory}/state/{REBUILD_NAME}"
    if not fs.exists(request):
        return False
    try:
        _rebuild(fs, directory, store, rows_per_file, go_on)
        fs.remove(request)
        fs.sync_directory(f"{directory}/state")
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise DiskFullError(f"no room for derived files: {error.filename}") from error
        raise FatalDiskError(f"derived files could not be rebuilt: {error}") from error
    return True


def _rebuild(
    fs: FileSystem,
    directory: str,
    store: ReplicaStore,
    rows_per_file: int,
    go_on: Callable[[], None],
) -> None:
    for name in DERIVED:
        fs.remove_tree(f"{directory}/{name}")
    tails = f"{directory}/state/{TAILS_NAME}"
    if fs.exists(tails):
        fs.remove(tails)
        fs.sync_directory(f"{directory}/state")
    fs.sync_directory(directory)
    checkpoint = store.recovered.checkpoint
    if checkpoint is None:
        return
    state = decode_machine_state(checkpoint.state)
    rebuilder = _Rebuilder(fs, directory, state.queues, rows_per_file)
    index = store.first_index
    while index <= checkpoint.index:
        go_on()
        checked = store.check_entries(index, checkpoint.index, READ_BYTES)
        for entry in checked.entries:
            rebuilder.add(entry)
        index = checked.next_index
    rebuilder.end()


class _Rebuilder:
    def __init__(
        self, fs: FileSystem, directory: str, lengths: list[QueueLength], rows_per_file: int
    ) -> None:
        self._fs = fs
        self._directory = f"{directory}/consumequeue"
        self._rows_per_file = rows_per_file
        self._queues = ConsumeQueues(fs, self._directory, rows_per_file=rows_per_file)
        self._keys = KeyIndex(fs, f"{directory}/keyindex")
        self._lengths = {(length.topic, length.queue_id): length for length in lengths}
        self._tails: dict[tuple[str, int], Tail] = {}
        self._rows: dict[tuple[str, int], bytearray] = {}
        self._key_rows = bytearray()
        self._buffered = 0
        self._next_index = -1

    def add(self, entry: Entry) -> None:
        """Adds the rows of the next intact entry."""
        if entry.index != self._next_index:
            self._write_keys()  # the range of a file must not include a skipped entry
        self._next_index = entry.index + 1
        if entry.kind is not EntryKind.DATA:
            return
        try:
            batch = decode_batch(entry.body)
        except CorruptBatchError as error:
            raise DamagedError(f"entry {entry.index}", 0, str(error)) from error
        for run in batch.runs:
            length = self._lengths.get((run.topic, run.queue_id))
            if length is None or length.first_offset == length.end_offset:
                continue
            kept, _ = block_of(length.first_offset, self._rows_per_file)
            first = max(run.first_offset, kept)
            end = min(run.first_offset + run.row_count, length.end_offset)
            if first < end:
                row = run.first_row + first - run.first_offset
                size = (end - first) * ROW_SIZE
                self._add_rows(length, first, batch.rows[row * ROW_SIZE :][:size])
        self._key_rows += batch.key_rows
        self._buffered += len(batch.key_rows)
        if self._buffered >= BUFFERED_BYTES_MAX:
            self._write()

    def _add_rows(self, length: QueueLength, first: int, rows: memoryview) -> None:
        key = (length.topic, length.queue_id)
        tail, buffered = self._tails.get(key), self._rows.get(key, b"")
        if tail is not None and tail.end + len(buffered) // ROW_SIZE != first:
            self._write_rows()
            tail = None
        if tail is None:
            self._tails[key] = unsealed(first, self._rows_per_file)
        self._rows.setdefault(key, bytearray()).extend(rows)
        self._buffered += len(rows)

    def end(self) -> None:
        """Writes what is in memory, and the tails. Called after the last entry."""
        self._write()
        lengths = self._lengths
        write_tails(
            self._fs,
            state_directory(self._directory),
            [
                (*key, tail)
                for key, tail in sorted(self._tails.items())
                if tail.position >= 0 and tail.end == lengths[key].end_offset
            ],
        )

    def _write(self) -> None:
        self._write_rows()
        self._write_keys()
        self._buffered = 0

    def _write_rows(self) -> None:
        few = len(self._rows) < BARRIER_QUEUES
        for key, rows in sorted(self._rows.items()):
            queue = self._queues.get_or_create(*key)
            self._tails[key] = queue.write_sealed(self._tails[key], bytes(rows), sync=few)
        if not few:
            self._fs.sync_all(self._directory)
        self._rows = {}

    def _write_keys(self) -> None:
        if self._key_rows:
            self._keys.write(bytes(self._key_rows))
        self._key_rows = bytearray()
