"""Compares blocks of ConsumeQueues with the log, and rebuilds them from it.

The rows of a block are collected from consecutive entries of the log. For a sealed and correct
block only their CRC is kept, which must be the seal's. For any other block the rows are kept. If
the disk has the same rows, the block is sealed; otherwise it is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from crc32c import crc32c

from store.errors import DamagedError
from store.index.block_seals import ROW_SIZE, UNKNOWN, Seal, Tail, block_of
from store.index.consume_queue import ConsumeQueue
from store.index.queue_rows import QueueRows
from store.io.filesystem import Bytes
from store.message.batch import Batch
from store.state.machine_state import MachineState

_Key: TypeAlias = tuple[str, int]


class _Block:
    """The rows from ``first`` to ``end`` of the block at ``begin``, from the log."""

    __slots__ = ("begin", "crc", "end", "first", "position", "reason", "rows", "seal_crc")

    def __init__(self, begin: int, first: int, position: int) -> None:
        self.begin = begin
        self.first = self.end = first
        self.position = position
        self.crc = 0
        self.rows: bytearray | None = None
        self.seal_crc = UNKNOWN
        self.reason = ""
        """What is wrong on disk."""


class QueueBlocksCheck:
    """Runs on the background executor."""

    def __init__(self, queue: Callable[[str, int], ConsumeQueue | None]) -> None:
        """``queue`` gives a queue by topic and id."""
        self._queue = queue
        self._ends: dict[_Key, int] = {}
        """The ends of queues in the newest checkpoint."""
        self._blocks: dict[_Key, _Block] = {}
        self._seen: set[_Key] | None = None
        """The queues seen since the first entry of the log; ``None`` in a later run."""
        self._wrong: set[tuple[_Key, int]] = set()
        """Blocks whose seal differs from the log."""

    def begin_pass(self, state: MachineState | None) -> None:
        """``state`` is that of the newest checkpoint."""
        queues = () if state is None else state.queues
        self._ends = {(each.topic, each.queue_id): each.end_offset for each in queues}
        self.begin_run(is_first=False)

    def begin_run(self, *, is_first: bool) -> None:
        """The entry before the next one was not read, or the next one is the first of the log."""
        self._blocks = {}
        self._seen = set() if is_first else None

    def take(self, batch: Batch) -> list[str]:
        """Takes the next entry. Returns what was wrong and is repaired."""
        told: list[str] = []
        for run in batch.runs:
            key = (run.topic, run.queue_id)
            queue, end = self._queue(*key), self._ends.get(key, 0)
            offset, stop = run.first_offset, min(run.first_offset + run.row_count, end)
            row = run.first_row
            while offset < stop and queue is not None:
                begin, block_end = block_of(offset, queue.rows_per_file)
                count = min(stop, block_end) - offset
                if block_end > queue.first_offset:
                    rows = batch.rows[row * ROW_SIZE : (row + count) * ROW_SIZE]
                    told += self._take(queue, key, begin, offset, rows, min(block_end, end))
                offset, row = offset + count, row + count
            if self._seen is not None:
                self._seen.add(key)
        return told

    def end_pass(self) -> list[str]:
        """Overwrites unreadable blocks of queues that are empty: no entry leads to these rows, as
        they have expired. Returns what was wrong and is repaired."""
        queues = ((self._queue(*key), end) for key, end in self._ends.items())
        return [
            told
            for queue, end in queues
            if queue is not None and queue.first_offset >= end == queue.tail.end
            for told in self._free(queue, end)
        ]

    def _free(self, queue: ConsumeQueue, end: int) -> list[str]:
        begin, _ = block_of(end, queue.rows_per_file)
        disk = queue.on_disk()
        try:
            if begin < end:
                disk.read_disk(begin, end)
        except DamagedError as error:
            # The file may be missing, or short: a refill brings no expired rows.
            if isinstance(error.__cause__, OSError):
                self._seal(queue, disk, _Block(begin, end, queue.tail.position))
                queue.forget_files()
                return [str(error)]
        return []

    def sealed_tails(self) -> dict[_Key, Tail]:
        """The sealed tails of the queues in the newest checkpoint."""
        queues = ((key, self._queue(*key)) for key in self._ends)
        tails = {key: queue.tail for key, queue in queues if queue is not None}
        return {key: tail for key, tail in tails.items() if tail.position >= 0}

    def _take(  # noqa: PLR0917 - rows, and where they belong
        self, queue: ConsumeQueue, key: _Key, begin: int, offset: int, rows: Bytes, stop: int
    ) -> list[str]:
        block = self._blocks.get(key)
        if block is None or block.end != offset or block.begin != begin:
            self._blocks.pop(key, None)
            if offset != begin and (self._seen is None or key in self._seen):
                return []  # some of its rows were not read
            block = _Block(begin, offset, int.from_bytes(rows[:8], "big"))
            whole = self._look(queue, block, stop)
            if not whole or offset != begin or (key, begin) in self._wrong:
                block.rows = bytearray()
            self._blocks[key] = block
        block.crc = crc32c(rows, block.crc)
        block.end += len(rows) // ROW_SIZE
        if block.rows is not None:
            block.rows += rows
        if block.end < stop:
            return []
        del self._blocks[key]
        return self._end(queue, key, block)

    @staticmethod
    def _look(queue: ConsumeQueue, block: _Block, stop: int) -> bool:
        """Reads a block from disk; returns whether it is sealed and correct."""
        disk = queue.on_disk()
        try:
            if stop < block_of(block.begin, queue.rows_per_file)[1]:
                block.seal_crc = queue.tail_crc(stop)
            elif (seal := disk.seal(block.begin)) is not None:
                block.seal_crc = seal.crc
            found = disk.read_disk(block.begin, stop)
        except DamagedError as error:
            block.reason = str(error)
            return False
        if block.seal_crc not in {UNKNOWN, crc32c(found)}:
            block.reason = _located(queue, block.begin, "CRC of a block of rows")
        return not block.reason and block.seal_crc != UNKNOWN

    def _end(self, queue: ConsumeQueue, key: _Key, block: _Block) -> list[str]:
        """Compares a block once all its rows are collected."""
        if block.rows is None:
            if block.crc != block.seal_crc:
                self._wrong.add((key, block.begin))
            return []
        disk, reason, found = queue.on_disk(), block.reason, b""
        try:
            found = disk.read_disk(block.first, block.end)
        except DamagedError as error:
            reason = reason or str(error)
        if found == block.rows:
            if not reason and block.seal_crc != UNKNOWN and (key, block.begin) not in self._wrong:
                return []
        elif found:
            pairs = zip(found, block.rows, strict=True)
            at = next(k for k, pair in enumerate(pairs) if pair[0] != pair[1]) // ROW_SIZE
            reason = _located(queue, block.first + at, "the row differs from the log")
        if queue.first_offset >= block.end:
            return []  # the block has expired meanwhile
        if found != block.rows:
            disk.write(block.first, bytes(block.rows))
        self._seal(queue, disk, block)
        self._wrong.discard((key, block.begin))
        if reason:
            queue.forget_files()
        return [reason] if reason else []

    @staticmethod
    def _seal(queue: ConsumeQueue, disk: QueueRows, block: _Block) -> None:
        crc = block.crc
        if block.first > block.begin:
            # The rows before have expired with the log. Their bytes do not count.
            try:
                before = disk.read_disk(block.begin, block.first)
            except DamagedError:
                before = bytes((block.first - block.begin) * ROW_SIZE)
                disk.write(block.begin, before)
            crc = crc32c(block.rows or b"", crc32c(before))
        if block_of(block.end, queue.rows_per_file)[0] == block.begin:
            queue.seal_tail(Tail(block.end, block.position, crc))
        else:
            disk.write(block.end, b"", [(block.begin, Seal(block.position, crc))])


def _located(queue: ConsumeQueue, offset: int, reason: str) -> str:
    path, byte = queue.locate(offset)
    return f"{path}, byte {byte}: {reason}"
