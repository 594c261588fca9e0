"""Ranges of bytes that a simulated disk cannot read: what fails, what heals, where they lie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.disk import SimulatedFile, SimulatedFileSystem
from simulator.faults.actions import ACTIONS
from simulator.hosts.durable_state import checkpoint_end, durable_mark
from simulator.worlds.cluster import Cluster
from simulator.worlds.registry import Run
from simulator.worlds.runner import play
from store.io.filesystem import BLOCK_SIZE
from store.io.unreadable_blocks import overwrite_blocks
from tests.simulator.hosts.test_host import leader_of, others
from tests.simulator.test_holes import with_unapplied
from tests.store.small_logs import simulated

BLOCKS = 6
SIZE = BLOCKS * BLOCK_SIZE - 700
"""The last block is not whole."""


def on_disk() -> tuple[SimulatedFileSystem, SimulatedFile]:
    fs = simulated()
    file = fs.open("/a", create=True)
    fs.sync_directory("/")
    file.pwrite(b"a" * SIZE, 0)
    file.datasync()
    return fs, file


def readable(file: SimulatedFile) -> list[bool]:
    """Block by block."""
    found = []
    for block in range(BLOCKS):
        try:
            file.pread(BLOCK_SIZE, block * BLOCK_SIZE)
            found.append(True)
        except OSError:
            found.append(False)
    return found


@pytest.mark.parametrize(
    ("byte", "size", "lost"),
    [
        (BLOCK_SIZE, 1, {1}),
        (BLOCK_SIZE - 1, 2, {0, 1}),
        (BLOCK_SIZE, 2 * BLOCK_SIZE, {1, 2}),
        (BLOCK_SIZE + 5, 2 * BLOCK_SIZE, {1, 2, 3}),
        (SIZE - 1, 1, {BLOCKS - 1}),
        (0, SIZE, set(range(BLOCKS))),
    ],
)
def test_a_range_takes_every_block_that_it_touches_and_no_other(
    byte: int, size: int, lost: set[int]
) -> None:
    fs, file = on_disk()
    fs.lose_sector("/a", byte, size)
    assert readable(file) == [block not in lost for block in range(BLOCKS)]


@pytest.mark.parametrize(("byte", "size"), [(SIZE, 1), (SIZE - 1, 2), (-1, 5), (7, 0)])
def test_bytes_that_a_file_has_not_cannot_be_lost(byte: int, size: int) -> None:
    fs, file = on_disk()
    with pytest.raises(ValueError, match="has no bytes"):
        fs.lose_sector("/a", byte, size)
    assert all(readable(file))


def test_a_whole_block_heals_itself_alone_and_lasts_with_the_next_sync() -> None:
    fs, file = on_disk()
    fs.lose_sector("/a", BLOCK_SIZE, 3 * BLOCK_SIZE)
    file.pwrite(b"b" * BLOCK_SIZE, 2 * BLOCK_SIZE)
    assert readable(file) == [True, False, True, False, True, True]
    file.datasync()
    fs.power_loss(keep=0.0)
    file = fs.open("/a")
    assert readable(file) == [True, False, True, False, True, True]
    assert file.pread(BLOCK_SIZE, 2 * BLOCK_SIZE) == b"b" * BLOCK_SIZE


def test_a_write_that_ends_within_a_lost_block_heals_those_before_it_and_fails() -> None:
    fs, file = on_disk()
    fs.lose_sector("/a", BLOCK_SIZE, 3 * BLOCK_SIZE)
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"b" * (2 * BLOCK_SIZE + 9), BLOCK_SIZE)
    assert readable(file) == [True, True, True, False, True, True]
    assert file.pread(2 * BLOCK_SIZE, BLOCK_SIZE) == b"b" * (2 * BLOCK_SIZE)


def test_the_last_block_of_a_file_is_healed_by_a_write_beyond_its_end_alone() -> None:
    fs, file = on_disk()
    last = (BLOCKS - 1) * BLOCK_SIZE
    fs.lose_sector("/a", last)
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"b" * (SIZE - last), last)
    file.pwrite(b"b" * BLOCK_SIZE, last)
    assert all(readable(file))


@given(
    st.lists(
        st.tuples(st.integers(0, SIZE - 1), st.integers(1, 3 * BLOCK_SIZE)), min_size=1, max_size=3
    ),
    st.integers(0, SIZE - 1),
    st.integers(1, 3 * BLOCK_SIZE),
)
def test_a_write_of_whole_blocks_where_it_must_be_leaves_its_bytes_and_zeros_beside_them(
    losses: list[tuple[int, int]], offset: int, size: int
) -> None:
    """What the store repairs with."""
    fs, file = on_disk()
    for byte, lost in losses:
        fs.lose_sector("/a", byte, min(lost, SIZE - byte))
    before = readable(file)
    size = min(size, SIZE - offset)
    overwrite_blocks(file, b"b" * size, offset)
    assert file.pread(size, offset) == b"b" * size
    assert file.size() == SIZE
    written = range(offset // BLOCK_SIZE, (offset + size - 1) // BLOCK_SIZE + 1)
    assert readable(file) == [was or block in written for block, was in enumerate(before)]
    for block in (block for block in written if not before[block]):
        whole = file.pread(BLOCK_SIZE, block * BLOCK_SIZE)
        assert set(whole) <= {0, ord("b")}


@pytest.mark.parametrize("share", [0.0, 0.4, 0.999])
def test_a_range_is_lost_between_the_newest_checkpoint_and_the_mark(share: float) -> None:
    places: list[tuple[int, int, int]] = []

    async def script(cluster: Cluster[Any]) -> None:
        await with_unapplied(cluster)
        host = others(cluster, leader_of(cluster))[0]
        fs, lost = host.fs, []
        fs.lose_sector = lambda *at: lost.append(at)  # type: ignore[method-assign]  # notes the calls
        ACTIONS["lose-unapplied"].run(cluster, host.name, share, 700)
        ((path, byte, size),) = lost
        mark = durable_mark(host)
        assert mark is not None
        start = int(path.rpartition("/")[2])
        places.append((checkpoint_end(host), start + byte, start + byte + size))
        assert start + byte + size <= mark.position

    assert play(Run(1, schedule=()).cluster(), script).violation is None
    ((begin, first, end),) = places
    assert begin <= first < end <= first + 700
