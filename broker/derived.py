"""Comparing ConsumeQueues and key index with the log that they are derived from.

Called by the scrub (``dledger/scrub.py``) on the background executor, which is also the one that
writes these files; so nobody else writes while a difference is looked at. What counts is what the
newest checkpoint covers: rows behind it may still be in memory.

What cannot be read is as good as wrong, for all of it is in the log. What cannot be written stops
the node, as anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from crc32c import crc32c

from store.batch import decode_batch
from store.checkpoint import decode_checkpoint
from store.commitlog import OUT_OF_SPACE
from store.consumequeue import ROW_SIZE, ROWS_PER_FILE
from store.entry import Entry, EntryKind
from store.errors import CorruptBatchError, DamagedError
from store.filesystem import FileSystem
from store.keyindex import HEADER, KEY_ROW_SIZE, IndexFile, KeyIndex
from store.layout import segment_name
from store.machinestate import MachineState, QueueLength, decode_machine_state
from store.rebuild import request_rebuild
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

CHECKPOINT_BYTES_MAX = 1 << 30
"""Pace: of this node's own checkpoint, which is read in one go."""

CRC_BYTES = 1 << 20
READ_BYTES = 1 << 20


class DerivedCheck:
    """See :class:`dledger.scrub.DerivedFiles`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        store: ReplicaStore,
        key_files: Callable[[], Sequence[IndexFile]],
        rows_per_file: int = ROWS_PER_FILE,
    ) -> None:
        """``key_files`` tells which files of the key index there should be; any thread.
        ``rows_per_file``: of a ConsumeQueue."""
        self._fs = fs
        self._directory = directory
        self._store = store
        self._key_files = key_files
        self._rows_per_file = rows_per_file
        self._state: MachineState | None = None
        self._lengths: dict[tuple[str, int], QueueLength] = {}

    def begin_pass(self) -> None:
        """Looks up what the newest checkpoint covers."""
        self._state, self._lengths = None, {}
        try:
            index, _, data = self._store.read_checkpoint(-1, 0, CHECKPOINT_BYTES_MAX)
            checkpoint = decode_checkpoint(data, f"checkpoint {index}") if index >= 0 else None
        except DamagedError as error:
            # The next checkpoint takes its place; the log is looked at all the same.
            log.error("what is derived is not compared with the log: %s", error)
            return
        if checkpoint is not None:
            self._state = decode_machine_state(checkpoint.state)
            self._lengths = {(item.topic, item.queue_id): item for item in self._state.queues}

    def check(self, entries: Sequence[Entry]) -> list[str]:
        """Rows of these entries that differ in a ConsumeQueue are written again."""
        told = []
        for (topic, queue_id, place), (first, rows) in self._rows(entries).items():
            if self._differs(topic, queue_id, first, rows) is None:
                continue
            # Meanwhile a newer checkpoint may have given up some of them.
            self.begin_pass()
            kept = self._rows(entries).get((topic, queue_id, place))
            found = None if kept is None else self._differs(topic, queue_id, *kept)
            if kept is not None and found is not None:
                self._write(topic, queue_id, *kept)
                told.append(found)
        return told

    def end_pass(self) -> list[str]:
        """A file of the key index that is not whole is made again."""
        told = []
        for file in self._key_files():
            try:
                self._check_keys(file)
            except DamagedError as error:
                if file in self._key_files():
                    self._make_again(file)
                    told.append(str(error))
        return told

    # --- ConsumeQueues

    def _rows(self, entries: Sequence[Entry]) -> dict[tuple[str, int, int], tuple[int, bytearray]]:
        """What the entries say about each queue, as far as the checkpoint covers it.

        By topic, queue and first offset of what they have without a gap: an entry that is damaged
        is missing among them, and the rows behind it do not follow those before it.
        """
        found: dict[tuple[str, int, int], tuple[int, bytearray]] = {}
        begun: dict[tuple[str, int], tuple[int, int]] = {}  # where it began, what comes next
        for entry in entries:
            if entry.kind is not EntryKind.DATA:
                continue
            try:
                batch = decode_batch(entry.body)
            except CorruptBatchError:
                continue  # its CRC is right: a leader made it so, and applying it has failed
            for run in batch.runs:
                queue = (run.topic, run.queue_id)
                length = self._lengths.get(queue)
                if length is None:
                    continue
                place, follows = begun.get(queue, (-1, -1))
                if follows != run.first_offset:
                    place = run.first_offset
                begun[queue] = (place, run.first_offset + run.count)
                first = max(run.first_offset, length.first_offset)
                end = min(run.first_offset + run.count, length.end_offset)
                if first < end:
                    row = run.first_row + first - run.first_offset
                    rows = batch.rows[row * ROW_SIZE : (row + end - first) * ROW_SIZE]
                    found.setdefault((*queue, place), (first, bytearray()))[1].extend(rows)
        return found

    def _differs(self, topic: str, queue_id: int, first: int, rows: bytearray) -> str | None:
        """What is wrong with the rows from offset ``first`` on, if anything is."""
        for path, byte, part in self._parts(topic, queue_id, first, rows):
            try:
                file = self._fs.open(path, writable=False)
            except FileNotFoundError:
                return f"{path}: the file is missing"
            try:
                data = file.pread(len(part), byte)
            except OSError as error:
                return f"{path}, byte {byte}: cannot be read: {error}"
            finally:
                file.close()
            if data != part:
                pairs = zip(data, part, strict=False)
                equal = next((k for k, pair in enumerate(pairs) if pair[0] != pair[1]), len(data))
                at = byte + equal - equal % ROW_SIZE
                return f"{path}, byte {at}: the row differs from the log"
        return None

    def _write(self, topic: str, queue_id: int, first: int, rows: bytearray) -> None:
        directory = f"{self._directory}/consumequeue/{topic}/{queue_id}"
        self._fs.make_directories(directory)
        for path, byte, part in self._parts(topic, queue_id, first, rows):
            file = self._fs.open(path, create=True)
            try:
                file.pwrite(part, byte)
                file.datasync()
            except OSError as error:
                if error.errno not in OUT_OF_SPACE:
                    # A page of the cache is read before some of it is written, so what cannot be
                    # read may not take rows either. The next start makes files, in other places.
                    request_rebuild(self._fs, self._directory)
                raise
            finally:
                file.close()
        self._fs.sync_directory(directory)

    def _parts(
        self, topic: str, queue_id: int, first: int, rows: bytearray
    ) -> list[tuple[str, int, bytes]]:
        """The rows by file: its path, the byte there, and the bytes."""
        parts = []
        at = 0
        while at < len(rows):
            offset = first + at // ROW_SIZE
            in_file = offset % self._rows_per_file
            size = min(len(rows) - at, (self._rows_per_file - in_file) * ROW_SIZE)
            name = segment_name((offset - in_file) * ROW_SIZE)
            path = f"{self._directory}/consumequeue/{topic}/{queue_id}/{name}"
            parts.append((path, in_file * ROW_SIZE, bytes(rows[at : at + size])))
            at += size
        return parts

    # --- the key index

    def _check_keys(self, file: IndexFile) -> None:
        try:
            if KeyIndex.read_header(self._fs, file.path) != file:
                raise DamagedError(file.path, 0, "the header is another one than it was")
            handle = self._fs.open(file.path, writable=False)
        except FileNotFoundError as error:
            raise DamagedError(file.path, 0, "the file is missing") from error
        except OSError as error:
            raise DamagedError(file.path, 0, f"cannot be read: {error}") from error
        crc, at = 0, HEADER.size
        try:
            end = HEADER.size + file.count * KEY_ROW_SIZE
            while at < end:
                data = handle.pread(min(CRC_BYTES, end - at), at)
                if not data:
                    break
                crc = crc32c(data, crc)
                at += len(data)
        except OSError as error:
            raise DamagedError(file.path, at, f"cannot be read: {error}") from error
        finally:
            handle.close()
        if crc != file.crc:
            raise DamagedError(file.path, 36, "CRC of the rows")

    def _make_again(self, file: IndexFile) -> None:
        """Its rows are those of the entries between its first and its last position."""
        rows = bytearray()
        index = self._entry_at(file.first_position)
        last = self._entry_at(file.last_position)
        while index <= last:
            for entry in self._store.read_entries(index, last, READ_BYTES):
                index = entry.index + 1
                if entry.kind is EntryKind.DATA:
                    rows += decode_batch(entry.body).key_rows
        kept = bytearray()
        for at in range(0, len(rows), KEY_ROW_SIZE):
            position = int.from_bytes(rows[at + 4 : at + 12], "big")
            if file.first_position <= position <= file.last_position:
                kept += rows[at : at + KEY_ROW_SIZE]
        beside = f"{self._directory}/keyindex.tmp"
        made = KeyIndex(self._fs, beside).write(bytes(kept))
        self._fs.rename(made.path, file.path)
        self._fs.sync_directory(f"{self._directory}/keyindex")
        self._fs.remove_tree(beside)

    def _entry_at(self, position: int) -> int:
        """The last entry that begins at or before ``position``."""
        low, high = self._store.first_index, self._store.last_index
        while low < high:
            middle = (low + high + 1) // 2
            if self._store.position_of(middle) <= position:
                low = middle
            else:
                high = middle - 1
        return low
