"""Finds the ranges of the log that the key index lacks, and rebuilds their files.

Each file of the key index has the range of its records. A *gap* is a range of the log without a
correct file. The key rows of a gap are collected from the log, and become a file once the whole gap
was read. So a missing file and a damaged one are handled alike, and a file of version 1 is
replaced. A crash may leave a new file beside those that it replaces: overlapping files are rebuilt
as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from store.errors import DamagedError
from store.index.key_file import KEY_ROW_SIZE, VERSION, IndexFile, check_pages
from store.index.key_index import KeyIndex
from store.io.filesystem import Bytes
from store.log.entry import Entry
from store.state.machine_state import MachineState

GATHERED_BYTES = 16 << 20
"""The number of rows after which a file is made although the gap continues, to bound the memory."""


@dataclass(slots=True)
class _Gap:
    """The positions from ``begin`` to before ``end``."""

    begin: int
    end: int
    rows: bytearray = field(default_factory=bytearray)


class KeyFilesCheck:
    """Runs on the background executor."""

    def __init__(self, keys: KeyIndex) -> None:
        self._keys = keys
        self._gaps: deque[_Gap] = deque()
        self._since = 0
        self._expired = 0

    def begin_pass(self, state: MachineState | None) -> None:
        """``state`` is that of the newest checkpoint. Its rows are in files, which the index knows
        soon after."""
        self._gaps = deque()
        doubtful, self._keys.doubtful = self._keys.doubtful, {}
        self._look_at(doubtful.values())
        if state is None:
            return
        self._expired = max(state.expired_position, self._keys.expired_position)
        known = self._keys.files_end
        end = state.applied_end if known is None else min(state.applied_end, known)
        pending = self._keys.pending
        files = [file for file in self._keys.files if file.first_position < end]
        renewed = [file for file in files if _is_renewed(file, pending)]
        begin = 0
        for file in files:
            if file not in renewed:
                self._add_gap(begin, file.first_position)
                begin = file.last_position + 1
        self._add_gap(begin, end)

    def _add_gap(self, begin: int, end: int) -> None:
        if max(begin, self._expired) < end:
            self._gaps.append(_Gap(begin, end))
        elif any(begin <= start < end for start in self._keys.pending):
            self._keys.remake(begin, end, b"")  # all its records have expired

    def begin_run(self, position: int) -> None:
        """The next entry is at ``position``, and the entry before it was not read; 0: the first
        entry of the log."""
        self._since = position
        while self._gaps and self._gaps[0].end <= position:
            self._gaps.popleft()
        for gap in self._gaps:
            gap.rows.clear()

    def take(self, entry: Entry, key_rows: Bytes) -> list[str]:
        """Takes the next entry with its key rows. Returns what was wrong."""
        told: list[str] = []
        while self._gaps and self._gaps[0].begin < entry.end:
            gap = self._gaps[0]
            if key_rows and self._covers(gap):
                first = int.from_bytes(key_rows[4:12], "big")
                last = int.from_bytes(key_rows[4 - KEY_ROW_SIZE : 12 - KEY_ROW_SIZE], "big")
                if gap.begin <= first < gap.end and last >= self._expired:
                    gap.rows += key_rows
            if entry.end < gap.end:
                if len(gap.rows) >= GATHERED_BYTES:
                    told += self._close(gap, entry.end)
                    gap.begin, gap.rows = entry.end, bytearray()
                break
            self._gaps.popleft()
            if self._covers(gap):
                told += self._close(gap, gap.end)
        return told

    def _covers(self, gap: _Gap) -> bool:
        """Whether the whole gap was read so far."""
        return self._since <= max(gap.begin, self._expired)

    def _close(self, gap: _Gap, end: int) -> list[str]:
        """Makes a file of the rows up to position ``end``. What is wrong there is looked up only
        now: another check may have made the file meanwhile."""
        pending = self._keys.pending
        reason = next((str(pending[at]) for at in pending if gap.begin <= at < end), "")
        if not (gap.rows or reason):
            return []
        missing = not any(gap.begin <= file.first_position < end for file in self._keys.files)
        made = self._keys.remake(gap.begin, end, bytes(gap.rows))
        if not reason and made is not None and missing:
            reason = f"{made.path}: the file is missing"
        return [reason] if reason else []

    def end_pass(self) -> list[str]:
        """Marks wrong files as pending."""
        self._look_at(self._keys.files)
        return []

    def _look_at(self, files: Iterable[IndexFile]) -> None:
        for file in files:
            try:
                check_pages(self._keys.fs, file)
            except DamagedError as error:
                self._keys.suspend(file, error)


def _is_renewed(file: IndexFile, pending: Iterable[int]) -> bool:
    """Whether a correct file is rebuilt: because of its version, or because a pending file begins
    in its range, and so in no gap."""
    return file.version != VERSION or any(
        file.first_position <= start <= file.last_position for start in pending
    )
