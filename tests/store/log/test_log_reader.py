"""The reader of the log: whole entries, and holes of every reason, from any kind of files."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import UnreadableError
from store.io.filesystem import BLOCK_SIZE
from store.log.entry import HEADER_SIZE, PADDING_SIZE, Entry
from store.log.layout import lay_out, segment_name
from store.log.log_reader import Cursor, Hole, HoleReason, LogReader, SegmentFiles, Window
from store.verify.files.read_buffers import Buffers
from tests.store.small_logs import DIRECTORY, Writer, data_of, simulated
from tests.support.search_effort import searching

SEGMENT = 4 * BLOCK_SIZE
COUNT = 90


def written(size: int = 500) -> tuple[SimulatedFileSystem, Writer]:
    """Three segments and more of entries of one size, and zeros behind."""
    fs, writer = simulated(), Writer(SEGMENT)
    fs.make_directories(f"{DIRECTORY}/commitlog")
    for position, data in lay_out(writer.make_many(COUNT, size), 0, SEGMENT):
        start = position - position % SEGMENT
        file = fs.open(path_of(start), create=True)
        if not file.size():
            file.pwrite(bytes(SEGMENT), 0)
        file.pwrite(data, position - start)
        file.datasync()
        file.close()
    return fs, writer


def path_of(position: int) -> str:
    return f"{DIRECTORY}/commitlog/{segment_name(position - position % SEGMENT)}"


def walked(
    fs: SimulatedFileSystem, *, size: int = SEGMENT, buffers: Buffers | None = None
) -> tuple[list[Entry], Hole, list[Window]]:
    reader = LogReader(SegmentFiles(fs, DIRECTORY, SEGMENT), buffers)
    cursor = Cursor(0, 0, 0, end=0)
    entries: list[Entry] = []
    windows = []
    while True:
        window = reader.window(cursor, size=size)
        windows.append(window)
        assert b"".join(data_of(window.entries)) == bytes(window.data[: sum_of(window.entries)])
        entries += [
            Entry(each.kind, each.index, each.term, each.position, each.chain_crc, bytes(each.data))
            for each in window.entries
        ]
        assert cursor.index == len(entries)
        if window.hole is not None:
            assert cursor.position == window.hole.position
            return entries, window.hole, windows


def sum_of(entries: list[Entry]) -> int:
    return sum(entry.size for entry in entries)


@pytest.mark.parametrize("left", [1, PADDING_SIZE - 1, PADDING_SIZE, HEADER_SIZE - 1])
def test_no_entry_fits_into_the_last_bytes_of_a_segment(left: int) -> None:
    fs, _ = written()
    reader = LogReader(SegmentFiles(fs, DIRECTORY, SEGMENT))
    found = reader.entry_at(SEGMENT - left)
    assert isinstance(found, Hole)
    assert found.position == SEGMENT - left


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("size", [HEADER_SIZE, 700, BLOCK_SIZE, SEGMENT, 10 * SEGMENT])
def test_all_entries_are_read_whatever_the_size_of_the_window(size: int, buffered: bool) -> None:
    fs, writer = written()
    entries, hole, windows = walked(fs, size=size, buffers=Buffers() if buffered else None)
    assert entries == writer.entries
    assert (hole.position, hole.reason) == (writer.end, HoleReason.ZEROS)
    closing = [window for window in windows if len(window.data) > sum_of(window.entries)]
    assert [len(each.data) - sum_of(each.entries) for each in closing] == [PADDING_SIZE] * (
        writer.end // SEGMENT
    )


@pytest.mark.parametrize("buffered", [False, True])
@searching(60)
@given(index=st.integers(0, COUNT - 1), bit=st.integers(0, 548 * 8 - 1))
def test_a_flipped_bit_is_a_hole_where_its_entry_begins(
    index: int, bit: int, buffered: bool
) -> None:
    fs, writer = written()
    struck = writer.entries[index]
    fs.flip_bit(path_of(struck.position), struck.position % SEGMENT + bit // 8, bit % 8)
    entries, hole, _ = walked(fs, buffers=Buffers() if buffered else None)
    assert entries == writer.entries[:index]
    assert hole.position == struck.position
    assert hole.reason in {
        HoleReason.CRC,
        HoleReason.CHAIN,
        HoleReason.MISPLACED,
        HoleReason.SHORT,  # of the size that it states
    }
    if bit // 8 not in range(4, 8):
        assert hole.end == struck.end


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("index", [0, 3, 31, 60, 75])
def test_what_comes_before_a_block_that_cannot_be_read_is_read(index: int, buffered: bool) -> None:
    fs, writer = written()
    lost = writer.entries[index]
    block = lost.position - lost.position % BLOCK_SIZE
    fs.lose_sector(path_of(lost.position), block % SEGMENT, BLOCK_SIZE)
    entries, hole, _ = walked(fs, buffers=Buffers() if buffered else None)
    assert entries == [entry for entry in writer.entries if entry.end <= block]
    assert hole.reason is HoleReason.EIO
    reader = LogReader(SegmentFiles(fs, DIRECTORY, SEGMENT))
    behind = next(entry for entry in writer.entries if entry.position >= block + BLOCK_SIZE)
    assert reader.entry_at(behind.position) == behind
    inside = reader.entry_at(lost.position)
    assert isinstance(inside, Hole)
    assert inside.reason is HoleReason.EIO


def test_a_segment_that_is_cut_short_or_missing_is_a_hole() -> None:
    fs, writer = written()
    second = next(entry for entry in writer.entries if entry.position == SEGMENT)
    fs.cut(path_of(SEGMENT), 20)
    _, hole, _ = walked(fs)
    assert (hole.position, hole.end, hole.reason) == (SEGMENT, second.end, HoleReason.SHORT)
    fs.remove(path_of(SEGMENT))
    entries, hole, _ = walked(fs)
    assert (hole.position, hole.end) == (SEGMENT, 2 * SEGMENT)
    assert hole.reason is HoleReason.MISSING
    assert entries == writer.entries[: second.index]


def test_entries_of_another_place_or_another_chain_are_told_apart() -> None:
    fs, writer = written()
    first, second = (fs.visible_bytes(path_of(at)) for at in (0, SEGMENT))
    file = fs.open(path_of(SEGMENT))
    file.pwrite(first, 0)
    _, hole, _ = walked(fs)
    assert (hole.position, hole.reason) == (SEGMENT, HoleReason.MISPLACED)
    other = Writer(SEGMENT)
    other.make_many(len([each for each in writer.entries if each.position < SEGMENT]), 499)
    file.pwrite(second, 0)
    fs.open(path_of(0)).pwrite(next(iter(lay_out(other.entries, 0, SEGMENT)))[1], 0)
    _, hole, _ = walked(fs)
    assert hole.position == other.end


def test_no_read_error_leaves_the_reader_as_one_of_the_operating_system() -> None:
    fs, writer = written()
    reader = LogReader(SegmentFiles(fs, DIRECTORY, SEGMENT))
    assert reader.entry_at(0) == writer.entries[0]
    for code in (errno.ENOMEM, errno.EACCES):
        fs.inject(Fault(1, code, operations={"pread"}, path=path_of(0), lasting=True))
        for read in (
            lambda: reader.read(0, 10),
            lambda: reader.read_into(memoryview(bytearray(10)), 0),
            lambda: reader.window(Cursor(0, 0)),
            lambda: reader.entry_at(0),
        ):
            with pytest.raises(UnreadableError, match="cannot be read"):
                read()


READERS = {
    "store/io/atomic_file.py": "small files",
    "store/io/os_filesystem.py": "the operating system",
    "store/io/unreadable_blocks.py": "for the reader, and before a repair",
    "store/log/log_reader.py": "the reader",
    "store/log/row_files.py": "the entry index",
    "store/snapshot.py": "copies for a snapshot",
    "store/restore.py": "copies of a snapshot",
    "store/state/checkpoint.py": "checkpoints",
    "store/index/": "derived files",
    "store/verify/files/": "a file system for the check, small files and rows",
    "store/verify/index/": "derived files",
    "broker/maintenance/": "derived files",
}
"""Who may read a file, and what."""


def test_nothing_but_the_reader_reads_segments() -> None:
    root = Path(__file__).parents[3]
    found = {
        path.relative_to(root).as_posix()
        for room in ("store", "dledger", "broker")
        for path in (root / room).rglob("*.py")
        if "pread" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in {"pread", "pread_into"}
    }
    assert {path for path in found if not path.startswith(tuple(READERS))} == set()
