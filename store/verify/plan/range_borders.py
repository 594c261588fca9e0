"""Finds where ranges may begin in one replica, by its entry index and headers of the log."""

from __future__ import annotations

from store.io.filesystem import ReadableFileSystem
from store.log.entry import HEADER, HEADER_SIZE, chain_crc
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import segment_start
from store.log.log_reader import LogReader, SegmentFiles
from store.verify.files.row_files import RowFiles
from store.verify.plan.ranges import Border, ReplicaPlan
from store.verify.state.state_files import StateFiles, without_broker

BLOCK_ROWS = 4096
"""Rows of the entry index that are read at once: 128 KiB."""
HEADERS_WALKED = 1 << 20
"""At most this many entries behind the entry index are found by their headers."""


class BorderFinder:
    """Finds where entries begin in one replica. It reads no bodies."""

    def __init__(self, fs: ReadableFileSystem, directory: str, state: StateFiles) -> None:
        self._state = state
        self._rows = RowFiles(fs, f"{directory}/index", ROW_SIZE)
        self._segments = SegmentFiles(fs, directory, state.identity.segment_size)
        self._log = LogReader(self._segments)
        self.replica = ReplicaPlan(directory, without_broker(state))
        mark = state.mark
        # If older entries have expired, the chain CRC before the first entry is unknown.
        chain = 0 if mark.first_index == 0 else None
        self.start = Border(mark.first_index, mark.first_position, chain, -1)
        self._walked = self.start
        self._block = b""
        self._block_first = 0
        self._found: dict[int, Border | None] = {}

    def find(self, index: int) -> Border | None:
        """The border before entry ``index``; ``None`` if the entry before it has no intact header.

        Also ``None`` if the replica does not know that entry to be committed: then another replica
        may rightly have another entry there.
        """
        if index not in self._found:
            self._found[index] = self._find(index)
        return self._found[index]

    def _find(self, index: int) -> Border | None:
        if index - 1 > self.replica.known_index:
            return None
        if index == self.start.index:
            return self.start
        if index <= self.replica.checkpoint_index + 1:
            return self._find_by_rows(index)
        return self._walk_to(index)

    def contradicts_itself(self) -> bool:
        """Whether mark, a checkpoint or the manifest name an entry with another chain CRC."""
        for named in sorted(self._state.named_entries(), key=lambda one: one.index):
            border = self.find(named.index + 1) if named.index >= self.start.index else None
            if border is not None and border.chain != named.chain:
                return True
        return False

    def assume(self, index: int) -> Border:
        """The border, by files that may be wrong. The check of the range finds that out."""
        older = {saved.path for saved in self._state.older}
        for one in self._state.named_entries():
            if one.index == index - 1 and one.path not in older:
                return Border(index, one.end, one.chain, -1 if one.term is None else one.term)
        row = self._row(index)
        return Border(index, self.start.position if row is None else row.position, None, -1)

    def close(self) -> None:
        self._segments.close()

    def position_of(self, index: int) -> int:
        """The position of an entry by the entry index; -1 without a row."""
        row = self._row(index)
        return -1 if row is None else row.position

    def _row(self, index: int) -> EntryIndexRow | None:
        """A row of the entry index. Rows are read in blocks: the next one is usually close."""
        at = (index - self._block_first) * ROW_SIZE
        if not 0 <= at <= len(self._block) - ROW_SIZE:
            first = max(index - BLOCK_ROWS // 2, 0)
            self._block, self._block_first = self._rows.read(first, BLOCK_ROWS), first
            at = (index - first) * ROW_SIZE
            if not 0 <= at <= len(self._block) - ROW_SIZE:
                return None
        row = EntryIndexRow._make(ROW.unpack_from(self._block, at))
        return row if row.entry_index == index and row.position >= 0 else None

    def _find_by_rows(self, index: int) -> Border | None:
        row = self._row(index - 1)
        if row is None:
            return None
        before = self.start
        if index - 1 > self.start.index:
            earlier = self._row(index - 2)
            header = None if earlier is None else self._header(earlier.position)
            if earlier is None or header is None or header[2] != index - 2:
                return None
            before = Border(index - 1, earlier.end, header[6], header[3])
        return self._behind(before, row.position)

    def _behind(self, before: Border, position: int) -> Border | None:
        """The border behind the next entry after ``before``, if its header is intact."""
        header = self._header(position)
        if header is None:
            return None
        magic, size, index, term, stated, _channel, chain, body_crc, length = header
        expected = chain
        if before.chain is not None:
            expected = chain_crc(before.chain, magic, size, index, term, stated, body_crc)
        if (
            (index, stated, chain, length) != (before.index, position, expected, size - HEADER_SIZE)
            or size < HEADER_SIZE
            or term < before.term
        ):
            return None
        return Border(index + 1, position + size, chain, term)

    def _walk_to(self, index: int) -> Border | None:
        """The border found by the headers behind the checkpoint, where the entry index may end."""
        if not self._walked.index <= index:
            self._walked = self.start
        checkpointed = self.replica.checkpoint_index + 1
        here: Border | None = self._walked
        if self._walked.index < checkpointed:
            here = self._find_by_rows(checkpointed)
        size = self._state.identity.segment_size
        while here is not None and here.index < index:
            if index - here.index > HEADERS_WALKED:
                return None
            following = self._behind(here, here.position)
            if following is None and here.position % size:
                start = segment_start(here.position, size) + size
                following = self._behind(here, start)
            here = following
        if here is not None:
            self._walked = here
        return here

    def _header(self, position: int) -> tuple[int, ...] | None:
        data, missing = self._log.read(position, HEADER_SIZE)
        return HEADER.unpack(data) if missing is None and len(data) == HEADER_SIZE else None
