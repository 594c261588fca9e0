"""The durable mark of a replica: how far its log is known to be durable, and where it begins.

The background thread moves the mark up, and a truncation in the storage thread moves it down. Both
hold one lock. The mark is lowered before the log is cut, and raised after the log is durable. So
after a crash the log may go on above the mark, but it never ends below it.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from store.errors import StoreError
from store.io.two_slot_file import TwoSlotFile
from store.log.commit_log import CommitLog
from store.log.entry_index import EntryIndex
from store.log.entry_reader import read_chain_crc
from store.state.hard_state import DurableMark


class DurableMarkTracker:
    """Of one replica."""

    def __init__(
        self, *, file: TwoSlotFile, mark: DurableMark, log: CommitLog, index: EntryIndex
    ) -> None:
        self.lock = threading.Lock()
        """Held while the mark, or what it says of the log, changes."""
        self.mark = mark
        self._file = file
        self._log = log
        self._index = index

    @property
    def committed_end(self) -> int:
        """Where the last entry ends that the saved mark calls committed."""
        index = self.mark.commit_index
        if index < self._index.first_index:
            return self.mark.first_position
        return self.mark.position if index == self.mark.index else self._index.row(index).end

    def close(self) -> None:
        self._file.close()

    def save(self, mark: DurableMark) -> None:
        """Durably replaces the mark. With the lock held."""
        if mark != self.mark:
            self._file.save(mark.pack())
            self.mark = mark

    def raise_to(self, index: int, position: int, chain_crc: int, commit_index: int) -> bool:
        """The log is durable up to that entry; ``False``, and nothing saved, where that is not so:
        it is not synced yet, or a truncation has replaced it since the caller looked."""
        with self.lock:
            if position > self._log.synced_end or not self.is_entry(index, position, chain_crc):
                return False
            mark = self.mark
            commit_index = max(mark.commit_index, min(commit_index, index))
            begins = (mark.first_index, mark.first_position)
            self.save(DurableMark(index, position, chain_crc, commit_index, *begins))
        return True

    def lower_for(self, first_index: int) -> DurableMark:
        """The entries from ``first_index`` on are about to be cut; returns the mark of what stays.

        With the lock held. Raises :class:`~store.errors.StoreError` if one of them is committed.
        """
        if first_index <= self.mark.commit_index:
            raise StoreError(
                f"cannot truncate from index {first_index}: "
                f"entries up to {self.mark.commit_index} are committed"
            )
        kept = self._at(first_index - 1)
        if self.mark.index >= first_index:
            self.save(kept)
        return kept

    def begin_at(self, first_index: int, first_position: int) -> None:
        """The log begins there from now on."""
        with self.lock:
            self.save(replace(self.mark, first_index=first_index, first_position=first_position))

    def is_entry(self, index: int, end_position: int, chain_crc: int) -> bool:
        """Whether that is an entry of the log as it is now."""
        if not self._index.first_index <= index < self._index.end_index:
            return False
        row = self._index.row(index)
        return row.end == end_position and read_chain_crc(self._log, self._index, row) == chain_crc

    def _at(self, index: int) -> DurableMark:
        """The mark as it would be on this entry of the log."""
        if index < self._index.first_index:
            return replace(self.mark, index=-1, position=0, chain_crc=0)
        row = self._index.row(index)
        chain_crc = read_chain_crc(self._log, self._index, row)
        return replace(self.mark, index=index, position=row.end, chain_crc=chain_crc)
