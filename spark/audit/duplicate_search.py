"""The search for messages that are in the log twice: equal topic and unique key.

A producer that gets no answer sends again, so this is no damage of a replica. The key index has the
sorted hashes of the unique keys. The search goes slice by slice of the hashes. A slice needs only a
part of each file. Records are read only if a hash occurs twice. Key rows behind the checkpoint are
in no file yet, and come from the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spark.audit.log_records import LogRecords
from store.errors import CorruptRecordError, DamagedError
from store.index.key_file import HEADER, KEY_ROW_SIZE, IndexFile, read_header, read_row
from store.io.filesystem import FileSystem
from store.log.entry import EntryKind
from store.log.entry_index import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import parse_segment_name
from store.message.batch import decode_batch
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import MessageRecord, key_hash
from store.verify.files.read_buffers import Buffers
from store.verify.files.row_files import RowFiles
from store.verify.findings import Finding, FindingKind, FindingLog
from store.verify.log.log_walk import LogWalk
from store.verify.log.record_columns import KEY_ROWS
from store.verify.plan.ranges import GroupPlan

HASHES = 1 << 32
FOUND_MAX = 1000
"""At most this many findings of one slice."""
ADVICE = (
    "nothing is wrong with the replica: a producer that got no answer sent the message again; let "
    "consumers of the topic expect that"
)
# Topics of copies that a broker made.
_INTERNAL = ("%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_", "TRANS_CHECK_")


class DuplicateSearch:
    """The search in the committed log of one replica of a group.

    Raises :class:`~store.errors.StoreError` if log or key index are damaged.
    """

    def __init__(self, fs: FileSystem, group: GroupPlan, place: int) -> None:
        self._fs = fs
        self._group = group
        self._place = place
        self._replica = group.replicas[place]
        self._records = LogRecords(fs, self._replica.directory, group.segment_size)
        self._entries = RowFiles(fs, f"{self._replica.directory}/index", ROW_SIZE)

    def find(self, low: int, high: int) -> list[Finding]:
        """Findings about messages whose unique key has a hash from ``low`` to before ``high``."""
        parts = [self._slice(file, low, high) for file in self._files()]
        parts += [
            rows[(rows["hash"] >= low) & (rows["hash"] < high)] for rows in self._rows_behind()
        ]
        rows = np.concatenate([*parts, np.empty(0, KEY_ROWS)])
        rows = rows[np.lexsort((rows["position"], rows["hash"]))]
        hashes = rows["hash"].astype(np.uint32)
        edges = np.flatnonzero(np.diff(hashes)) + 1
        findings: list[Finding] = []
        for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(rows)], strict=True):
            if end - begin < 2:
                continue
            positions = dict.fromkeys(rows["position"][begin:end].tolist())
            for copies in self._copies(int(hashes[begin]), list(positions)):
                findings.append(self._finding(copies))
                if len(findings) >= FOUND_MAX:
                    return findings
        return findings

    def _copies(self, wanted: int, positions: list[int]) -> list[list[MessageRecord]]:
        """Lists of messages with equal topic and unique key, of those with the hash ``wanted``."""
        if len(positions) < 2:
            return []
        by_key: dict[tuple[str, bytes], list[MessageRecord]] = {}
        for position in positions:
            try:
                record = self._records.read(position)
            except CorruptRecordError as error:
                path, byte = self._records.locate(position)
                raise DamagedError(path, byte, f"no message: {error}") from error
            if record is None or record.topic.startswith(_INTERNAL):
                continue  # expired, or not sent by a producer
            unique = find_property(record.properties, UNIQUE_KEY) or b""
            if unique and key_hash(record.topic, unique) == wanted:
                by_key.setdefault((record.topic, unique), []).append(record)
        return [copies for copies in by_key.values() if len(copies) > 1]

    def _finding(self, copies: list[MessageRecord]) -> Finding:
        first, second, *_ = copies
        path, byte = self._records.locate(second.position)
        unique = (find_property(first.properties, UNIQUE_KEY) or b"").decode(errors="replace")
        log = FindingLog(self._replica.name)
        log.add(
            FindingKind.DUPLICATE,
            path,
            byte,
            f"message {unique} of {first.topic} once: {_place(first)}",
            f"{len(copies)} times, the next as {_place(second)}",
            ADVICE,
            first=self._index_of(first.position),
            last=self._index_of(copies[-1].position),
        )
        return log.findings[0]

    # --- positions

    def _index_of(self, position: int) -> int | None:
        """The entry that holds a position; ``None`` if it is not in the entry index yet."""
        low, high = self._replica.first_index, self._replica.known_index
        while low < high:
            middle = (low + high + 1) // 2
            data = self._entries.read(middle, 1)
            if len(data) == ROW_SIZE and ROW.unpack(data)[1] <= position:
                low = middle
            else:
                high = middle - 1
        data = self._entries.read(low, 1)
        row = EntryIndexRow._make(ROW.unpack(data)) if len(data) == ROW_SIZE else None
        return low if row is not None and row.position <= position < row.end else None

    def _files(self) -> Iterator[IndexFile]:
        directory = f"{self._replica.directory}/keyindex"
        for name in self._fs.list_directory(directory) if self._fs.exists(directory) else []:
            start = parse_segment_name(name)
            if start is not None and start < self._covered_end:
                yield read_header(self._fs, f"{directory}/{name}")

    @property
    def _covered_end(self) -> int:
        """The position up to which key rows are in files."""
        for plan in self._group.ranges:
            border = plan.borders[self._place]
            if border is not None and border.index == self._replica.checkpoint_index + 1:
                return border.position
        return 0 if self._replica.checkpoint_index < 0 else 1 << 62

    def _slice(self, file: IndexFile, low: int, high: int) -> NDArray[np.void]:
        handle = self._fs.open(file.path, writable=False)

        def first_from(value: int) -> int:
            begin, end = 0, file.count
            while begin < end:
                middle = (begin + end) // 2
                if read_row(handle, middle)[0] < value:
                    begin = middle + 1
                else:
                    end = middle
            return begin

        try:
            begin, end = first_from(low), first_from(high)
            size = (end - begin) * KEY_ROW_SIZE
            data = handle.pread(size, HEADER.size + begin * KEY_ROW_SIZE)
        finally:
            handle.close()
        if len(data) != size:
            raise DamagedError(file.path, HEADER.size, f"fewer than {file.count} rows")
        return np.frombuffer(data, KEY_ROWS)

    def _rows_behind(self) -> Iterator[NDArray[np.void]]:
        """The key rows of committed entries behind the checkpoint."""
        for plan in self._group.ranges:
            border = plan.borders[self._place]
            if (
                border is None
                or plan.last_index is None
                or border.index <= self._replica.checkpoint_index
            ):
                continue
            log = LogWalk(
                self._fs,
                [self._replica.directory],
                self._group.segment_size,
                border=border,
                last_index=plan.last_index,
                buffers=Buffers(),
            )
            for window in log.windows():
                for entry in window.entries:
                    if entry.kind is EntryKind.DATA:
                        batch = decode_batch(entry.body)
                        yield np.frombuffer(bytes(batch.key_rows), KEY_ROWS)


def _place(record: MessageRecord) -> str:
    queue = f"queue {record.queue_id} (position {record.position})"
    return f"number {record.queue_offset} of {queue}"
