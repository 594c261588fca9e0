"""Compares ConsumeQueues and key index with the log.

The scrub calls it (``dledger/node/scrubber.py``) on the background executor. That executor also
writes these files, so nobody else writes during a comparison. Only the part that the newest
checkpoint covers counts: rows behind it may still be in memory.

Unreadable rows count as wrong, because the log has everything. A failed write stops the node, as
anywhere.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from crc32c import crc32c

from store.errors import CorruptBatchError, DamagedError
from store.index.consume_queue import ROW_SIZE, ROWS_PER_FILE
from store.index.key_index import HEADER, KEY_ROW_SIZE, IndexFile, KeyIndex
from store.index_rebuild import request_rebuild
from store.io.filesystem import FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry, EntryKind
from store.log.layout import parse_segment_name, segment_name
from store.message.batch import Batch, decode_batch
from store.replica import ReplicaStore
from store.state.checkpoint import decode_checkpoint
from store.state.machine_state import MachineState, QueueLength, decode_machine_state

log = logging.getLogger(__name__)

CHECKPOINT_BYTES_MAX = 1 << 30
"""Pace: of this node's own checkpoint, which is read in one go."""

CRC_BYTES = 1 << 20  # whole rows
KEY_ROWS = [("hash", ">u4"), ("position", ">i8"), ("time", ">u4")]
READ_BYTES = 1 << 20
BUFFERED_BYTES_MAX = 16 << 20
"""Pace: of rows that no file of the key index has, until they are written to one."""


Batches: TypeAlias = Sequence[tuple[Entry, Batch]]


class DerivedFilesCheck:
    """See :class:`dledger.node.scrubber.DerivedFiles`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        store: ReplicaStore,
        keys: KeyIndex,
        rows_per_file: int = ROWS_PER_FILE,
    ) -> None:
        """``rows_per_file``: of a ConsumeQueue."""
        self._fs = fs
        self._directory = directory
        self._store = store
        self._keys = keys
        self._rows_per_file = rows_per_file
        self._state: MachineState | None = None
        self._lengths: dict[tuple[str, int], QueueLength] = {}
        self._starts: list[int] = []  # of the files of the key index, with where each one ends
        self._ends: list[int] = []
        self._without_file: dict[int, tuple[int, bytes]] = {}
        """By index of the entry: its key rows, and in which run of entries it was read. Where one
        is damaged another run begins."""
        self._without_file_bytes = 0
        self._run = 0
        self._run_end = 0

    def begin_pass(self) -> None:
        """Looks up what the newest checkpoint covers."""
        self._state, self._lengths = None, {}
        self._list_key_files()
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
        batches = _batches(entries)
        for (topic, queue_id, place), (first, rows) in self._rows(batches).items():
            if self._differs(topic, queue_id, first, rows) is None:
                continue
            # Meanwhile a newer checkpoint may have given up some of them.
            self.begin_pass()
            kept = self._rows(batches).get((topic, queue_id, place))
            found = None if kept is None else self._differs(topic, queue_id, *kept)
            if kept is not None and found is not None:
                self._write(topic, queue_id, *kept)
                told.append(found)
        self._find_keys(entries, batches)
        return told

    def end_pass(self) -> list[str]:
        """A file of the key index that is not whole, or is missing, is made again."""
        told = []
        for file in self._keys.files:
            try:
                stated = self._check_keys(file)
                if stated == file:
                    continue
                found = (
                    f"{file.path}, byte 8: the header says other positions or times than the rows"
                )
            except DamagedError as error:
                stated, found = file, str(error)
            if file in self._keys.files:
                self._make_again(file, stated)
                told.append(found)
        return told + self._make_missing()

    # --- ConsumeQueues

    def _rows(self, batches: Batches) -> dict[tuple[str, int, int], tuple[int, bytearray]]:
        """The rows of each queue by the entries, as far as the checkpoint covers it.

        Rows without a gap, by topic, queue and first offset. A damaged entry is missing among them,
        and the rows behind it do not follow those before it.
        """
        found: dict[tuple[str, int, int], tuple[int, bytearray]] = {}
        begun: dict[tuple[str, int], tuple[int, int]] = {}  # where it began, what comes next
        for _, batch in batches:
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
        """The mistake in the rows from offset ``first`` on, if any."""
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

    def _list_key_files(self) -> None:
        """Of the disk, as it is now: the newest file may be in no list yet. One whose header cannot
        be read reaches to the next one; the end of the pass sees to it."""
        directory = f"{self._directory}/keyindex"
        names = self._fs.list_directory(directory) if self._fs.exists(directory) else []
        self._starts = [start for name in names if (start := parse_segment_name(name)) is not None]
        self._ends = [*self._starts[1:], 1 << 63]
        for place, start in enumerate(self._starts):
            try:
                file = KeyIndex.read_header(self._fs, f"{directory}/{segment_name(start)}")
            except (DamagedError, FileNotFoundError):
                continue
            self._ends[place] = min(self._ends[place], file.last_position + 1)

    def _find_keys(self, entries: Sequence[Entry], batches: Batches) -> None:
        """Gathers the key rows of these entries that no file has, but a missing one had."""
        end = 0 if self._state is None else self._state.applied_end
        runs: dict[int, int] = {}
        for entry in entries:
            self._run += entry.index != self._run_end
            self._run_end = entry.index + 1
            runs[entry.index] = self._run
        for entry, batch in batches:
            rows = bytes(batch.key_rows) if entry.end <= end else b""
            if rows and self._without_file_at(rows) is not None:
                self._without_file_bytes += len(rows)
                self._without_file[entry.index] = runs[entry.index], rows
        if self._without_file_bytes > BUFFERED_BYTES_MAX:
            self._make_missing()

    def _make_missing(self) -> list[str]:
        """Files of the collected rows. None reaches beyond the start of another one.

        Nor over an entry that could not be read: its rows come once it is whole again, and need a
        place of their own.
        """
        gathered, self._without_file = self._without_file, {}
        self._without_file_bytes = 0
        self._list_key_files()  # what has been made again may have some of them
        expired = 0 if self._state is None else self._state.expired_position
        expired = max(expired, self._keys.expired_position)
        files: dict[tuple[int, int], bytearray] = {}
        for _, (run, rows) in sorted(gathered.items()):
            place = self._without_file_at(rows)
            last = int.from_bytes(rows[4 - KEY_ROW_SIZE : 12 - KEY_ROW_SIZE], "big")
            if place is not None and last >= expired:  # the entry may begin below
                files.setdefault((place, run), bytearray()).extend(rows)
        told = []
        for gathered_rows in files.values():
            file = KeyIndex(self._fs, f"{self._directory}/keyindex").write(bytes(gathered_rows))
            self._keys.exchange(None, file)
            told.append(f"{file.path}: the file is missing")
        return told

    def _without_file_at(self, rows: bytes) -> int | None:
        """How many files begin before these rows of an entry, if none of them has the rows."""
        position = int.from_bytes(rows[4:12], "big")
        before = bisect_right(self._starts, position)
        return before if not before or position >= self._ends[before - 1] else None

    def _check_keys(self, file: IndexFile) -> IndexFile:
        """The header that the rows lead to. Raises :class:`DamagedError`."""
        # Imported here, off the event loop, as in ``store/index/key_index.py``.
        import numpy as np  # noqa: PLC0415 - a node that starts waits for no NumPy

        try:
            if KeyIndex.read_header(self._fs, file.path) != file:
                raise DamagedError(file.path, 0, "the header is another one than it was")
            handle = self._fs.open(file.path, writable=False)
        except FileNotFoundError as error:
            raise DamagedError(file.path, 0, "the file is missing") from error
        except OSError as error:
            raise DamagedError(file.path, 0, f"cannot be read: {error}") from error
        crc, at = 0, HEADER.size
        edges: list[tuple[int, int, int, int]] = []
        try:
            end = HEADER.size + file.count * KEY_ROW_SIZE
            while at < end:
                data = handle.pread(min(CRC_BYTES, end - at), at)
                if len(data) < min(CRC_BYTES, end - at):
                    raise DamagedError(file.path, at + len(data), "the file is cut short")
                crc = crc32c(data, crc)
                at += len(data)
                rows = np.frombuffer(data, KEY_ROWS)
                positions, seconds = rows["position"], rows["time"]
                edges.append((positions.min(), positions.max(), seconds.min(), seconds.max()))
        except OSError as error:
            raise DamagedError(file.path, at, f"cannot be read: {error}") from error
        finally:
            handle.close()
        if crc != file.crc or not edges:
            raise DamagedError(file.path, 36, "CRC of the rows")
        first, last, first_seconds, last_seconds = zip(*edges, strict=True)
        return replace(
            file,
            first_position=int(min(first)),
            last_position=int(max(last)),
            first_seconds=int(min(first_seconds)),
            last_seconds=int(max(last_seconds)),
        )

    def _make_again(self, file: IndexFile, stated: IndexFile) -> None:
        """Its rows are those of the entries between its first and its last position."""
        rows = bytearray()
        index = self._entry_at(stated.first_position)
        last = self._entry_at(stated.last_position)
        while index <= last:
            for entry in self._store.read_entries(index, last, READ_BYTES):
                index = entry.index + 1
                if entry.kind is EntryKind.DATA:
                    rows += decode_batch(entry.body).key_rows
        kept = bytearray()
        for at in range(0, len(rows), KEY_ROW_SIZE):
            position = int.from_bytes(rows[at + 4 : at + 12], "big")
            if stated.first_position <= position <= stated.last_position:
                kept += rows[at : at + KEY_ROW_SIZE]
        directory, beside = f"{self._directory}/keyindex", f"{self._directory}/keyindex.tmp"
        made = None
        if kept:  # the log has not given up all of them
            made = KeyIndex(self._fs, beside).write(bytes(kept))
            path = f"{directory}/{segment_name(made.first_position)}"
            self._fs.rename(made.path, path)
            made = replace(made, path=path)
        if (made is None or made.path != file.path) and self._fs.exists(file.path):
            self._fs.remove(file.path)
        self._fs.sync_directory(directory)
        self._fs.remove_tree(beside)
        self._keys.exchange(file, made)

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


def _batches(entries: Sequence[Entry]) -> Batches:
    """Those of the entries that have one."""
    found = []
    for entry in entries:
        if entry.kind is EntryKind.DATA:
            try:
                found.append((entry, decode_batch(entry.body)))
            except CorruptBatchError:
                continue  # its CRC is right: a leader made it so, and applying it has failed
    return found
