"""The simulated disk loses, tears and fails as it says."""

from __future__ import annotations

import errno

import pytest

from simulator.engine.disk import (
    SECTOR_SIZE,
    Fault,
    PowerLossError,
    SimulatedFile,
    SimulatedFileSystem,
)
from store.io.filesystem import BLOCK_SIZE
from tests.store.small_logs import simulated


def written(fs: SimulatedFileSystem, data: bytes, path: str = "/a") -> SimulatedFile:
    """A file whose name is durable, with unsynced bytes."""
    file = fs.open(path, create=True)
    fs.sync_directory("/")
    file.pwrite(data, 0)
    return file


def test_a_process_crash_keeps_what_was_written() -> None:
    fs = simulated()
    written(fs, b"hello")
    fs.crash()
    assert fs.open("/a").pread(9, 0) == b"hello"


def test_a_power_loss_without_mercy_keeps_what_was_synced_only() -> None:
    fs = simulated()
    file = written(fs, b"a" * 600)
    file.datasync()
    file.pwrite(b"b" * 600, 300)
    fs.power_loss(keep=0.0)
    assert fs.open("/a").pread(2000, 0) == b"a" * 600


def test_a_power_loss_tears_a_write_at_sectors() -> None:
    outcomes = set()
    for seed in range(40):
        fs = simulated(seed)
        file = written(fs, b"a" * 1024)
        file.datasync()
        file.pwrite(b"b" * 1024, 0)
        fs.power_loss()
        outcomes.add(fs.visible_bytes("/a"))
    halves = [b"a" * 512, b"b" * 512]
    assert outcomes == {one + two for one in halves for two in halves}


def test_lost_growth_of_a_file_may_leave_zeros_within() -> None:
    outcomes = set()
    for seed in range(40):
        fs = simulated(seed)
        written(fs, b"b" * 1024)
        fs.power_loss()
        outcomes.add(fs.visible_bytes("/a"))
    assert bytes(512) + b"b" * 512 in outcomes
    assert b"b" * 512 in outcomes
    assert b"" in outcomes


def test_a_name_that_was_not_synced_may_vanish_with_its_synced_bytes() -> None:
    fs = simulated()
    file = fs.open("/a", create=True)
    file.pwrite(b"hello", 0)
    file.datasync()
    assert fs.durable_bytes("/a") is None
    fs.power_loss(keep=0.0)
    assert not fs.exists("/a")


def test_an_unsynced_rename_leaves_the_old_or_the_new() -> None:
    outcomes = set()
    for seed in range(20):
        fs = simulated(seed)
        written(fs, b"old", "/a").datasync()
        written(fs, b"new", "/b").datasync()
        fs.rename("/b", "/a")
        fs.power_loss()
        outcomes.add(fs.visible_bytes("/a"))
    assert outcomes == {b"old", b"new"}


def test_an_unsynced_removal_may_come_back() -> None:
    fs = simulated()
    written(fs, b"hello").datasync()
    fs.remove("/a")
    assert not fs.exists("/a")
    fs.power_loss(keep=0.0)
    assert fs.visible_bytes("/a") == b"hello"


def test_a_link_is_another_name_of_the_same_bytes() -> None:
    fs = simulated()
    file = written(fs, b"hello")
    fs.link("/a", "/b")
    file.pwrite(b"J", 0)
    fs.remove("/a")
    assert fs.visible_bytes("/b") == b"Jello"
    with pytest.raises(FileNotFoundError):
        fs.link("/a", "/c")


def test_a_failed_sync_leaves_bytes_that_read_well_and_that_no_later_sync_writes() -> None:
    lost = 0
    for seed in range(20):
        fs = simulated(seed)
        file = written(fs, b"hello")
        fs.inject(Fault(1, errno.EIO, operations={"datasync"}))
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        file.datasync()
        assert file.pread(5, 0) == b"hello"
        fs.power_loss(keep=1.0)
        lost += fs.visible_bytes("/a") != b"hello"
    assert 0 < lost < 20


def test_bytes_written_again_after_a_failed_sync_are_synced() -> None:
    fs = simulated()
    file = written(fs, b"hello")
    fs.inject(Fault(1, errno.EIO, operations={"datasync"}))
    with pytest.raises(OSError, match="Input/output"):
        file.datasync()
    file.pwrite(b"hello", 0)
    file.datasync()
    fs.power_loss(keep=0.0)
    assert fs.visible_bytes("/a") == b"hello"


def test_an_open_file_is_useless_after_a_crash() -> None:
    fs = simulated()
    file = written(fs, b"hello")
    fs.crash()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)
    assert fs.visible_bytes("/a") == b"hello"


def test_the_nth_change_fails_and_reads_are_not_counted() -> None:
    fs = simulated()
    file = written(fs, b"hello")
    fault = fs.inject(Fault(2, errno.ENOSPC))
    file.pread(1, 0)
    file.pwrite(b"x", 0)
    assert not fault.hit
    with pytest.raises(OSError, match="No space left"):
        file.datasync()
    assert fault.hit
    file.datasync()


def test_a_lasting_fault_fails_every_call_that_matches() -> None:
    fs = simulated()
    file, other = written(fs, b"hello", "/bad/../a"), written(fs, b"x", "/b")
    fs.inject(Fault(1, errno.EIO, operations={"pread"}, path="/a", lasting=True))
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            file.pread(1, 0)
    assert other.pread(1, 0) == b"x"


def test_after_the_power_went_nothing_answers_until_the_machine_is_back() -> None:
    fs = simulated()
    file = written(fs, b"hello")
    fs.lose_power_at(1)
    with pytest.raises(PowerLossError):
        file.datasync()
    with pytest.raises(PowerLossError):
        fs.exists("/a")
    fs.power_loss()
    assert fs.exists("/a")


def test_a_full_disk_takes_what_fits_and_then_says_so() -> None:
    fs = simulated(capacity=8)
    file = fs.open("/a", create=True)
    file.pwrite(b"12345", 0)
    assert fs.free_bytes("/") == 3
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"67890", 5)
    assert fs.visible_bytes("/a") == b"12345678"
    file.pwrite(b"abc", 0)


def test_truncation_is_lost_or_kept_as_a_whole() -> None:
    outcomes = set()
    for seed in range(20):
        fs = simulated(seed)
        file = written(fs, b"a" * 1000)
        file.datasync()
        file.truncate(10)
        fs.power_loss()
        outcomes.add(fs.visible_bytes("/a"))
    assert outcomes == {b"a" * 10, b"a" * 1000}


def test_a_lock_is_held_until_released_or_until_its_process_dies() -> None:
    fs = simulated()
    fs.lock("/lock").release()
    fs.lock("/lock")
    with pytest.raises(BlockingIOError):
        fs.lock("/lock")
    fs.crash()
    fs.lock("/lock")


def test_a_copy_goes_its_own_way() -> None:
    fs = simulated()
    file = written(fs, b"hello")
    twin = fs.copy()
    file.pwrite(b"J", 0)
    twin.power_loss(keep=0.0)
    assert fs.visible_bytes("/a") == b"Jello"
    assert twin.visible_bytes("/a") == b""


def test_directories_are_listed_in_order_with_files_and_removed_as_trees() -> None:
    fs = simulated()
    fs.make_directories("/data/b")
    fs.open("/data/z", create=True)
    fs.open("/data/a", create=True)
    assert fs.list_directory("/data") == ["a", "b", "z"]
    fs.remove_tree("/data")
    assert not fs.exists("/data")
    fs.remove_tree("/data")
    with pytest.raises(FileNotFoundError):
        fs.open("/data/new", create=True)


def test_the_same_seed_loses_the_same() -> None:
    outcomes = []
    for _ in range(2):
        fs = simulated(7)
        written(fs, bytes(range(256)) * 40)
        fs.power_loss()
        outcomes.append(fs.visible_bytes("/a"))
    assert outcomes[0] == outcomes[1]


def test_a_barrier_makes_bytes_and_names_below_a_directory_durable_and_nothing_else() -> None:
    fs = simulated(1)
    for path in ("/data/queues/a", "/data/other"):
        fs.make_directories(path, sync=False)
        fs.open(f"{path}/file", create=True).pwrite(b"bytes", 0)
    fs.sync_all("/data/queues")
    fs.power_loss(keep=0)
    assert fs.durable_bytes("/data/queues/a/file") == b"bytes"
    assert not fs.exists("/data/other/file")


def test_a_barrier_that_fails_leaves_bytes_that_no_later_one_writes() -> None:
    fs = simulated(1)
    fs.make_directories("/data/a")
    fs.open("/data/a/file", create=True).pwrite(b"b" * 100 * SECTOR_SIZE, 0)
    fs.sync_directory("/data/a")
    fs.inject(Fault(1, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        fs.sync_all("/data")
    fs.sync_all("/data")
    fs.power_loss(keep=0)
    assert fs.visible_bytes("/data/a/file") != b"b" * 100 * SECTOR_SIZE


def with_a_lost_sector(blocks: int = 3) -> tuple[SimulatedFileSystem, SimulatedFile]:
    """The second block of a file cannot be read."""
    fs = simulated()
    file = written(fs, b"a" * blocks * BLOCK_SIZE)
    file.datasync()
    fs.lose_sector("/a", BLOCK_SIZE + 700)
    return fs, file


def test_a_lost_sector_fails_every_read_that_touches_its_block() -> None:
    fs, file = with_a_lost_sector()
    assert file.pread(BLOCK_SIZE, 0) == b"a" * BLOCK_SIZE
    assert file.pread(9 * BLOCK_SIZE, 2 * BLOCK_SIZE) == b"a" * BLOCK_SIZE
    for size, position in ((1, BLOCK_SIZE), (BLOCK_SIZE + 1, 0), (9, 2 * BLOCK_SIZE - 1)):
        with pytest.raises(OSError, match="Input/output error"):
            file.pread(size, position)
    assert not fs.holds("/", "a", BLOCK_SIZE + 5, b"a")
    assert fs.holds("/", "a", 0, b"a" * BLOCK_SIZE)


@pytest.mark.parametrize(
    ("position", "size"), [(BLOCK_SIZE + 5, 10), (10, BLOCK_SIZE), (BLOCK_SIZE, BLOCK_SIZE - 1)]
)
def test_a_write_to_a_part_of_its_block_fails_and_ends_before_it(position: int, size: int) -> None:
    fs, file = with_a_lost_sector()
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"b" * size, position)
    before = b"a" * position + b"b" * max(0, BLOCK_SIZE - position)
    assert fs.open("/a").pread(BLOCK_SIZE, 0) == before[:BLOCK_SIZE]


@pytest.mark.parametrize("synced", [False, True])
def test_a_block_that_is_written_as_a_whole_reads_well_and_lasts_once_synced(synced: bool) -> None:
    fs, file = with_a_lost_sector()
    file.pwrite(b"b" * BLOCK_SIZE, BLOCK_SIZE)
    file.pwrite(b"c", BLOCK_SIZE + 9)
    if synced:
        file.datasync()
    fs.crash()
    assert fs.open("/a").pread(1, BLOCK_SIZE + 9) == b"c"
    fs.power_loss(keep=0.0)
    file = fs.open("/a")
    if synced:
        assert file.pread(2, BLOCK_SIZE + 8) == b"bc"
    else:
        with pytest.raises(OSError, match="Input/output error"):
            file.pread(1, BLOCK_SIZE)


def test_after_a_failed_sync_no_later_one_brings_the_block_back() -> None:
    fs, file = with_a_lost_sector()
    file.pwrite(b"b" * BLOCK_SIZE, BLOCK_SIZE)
    fs.inject(Fault(1, errno.EIO, operations=("datasync",)))
    with pytest.raises(OSError, match="Input/output error"):
        file.datasync()
    file.datasync()
    fs.power_loss()
    with pytest.raises(OSError, match="Input/output error"):
        fs.open("/a").pread(1, BLOCK_SIZE)


def test_a_direct_append_has_the_bytes_of_its_block_at_hand_or_reads_them() -> None:
    fs = simulated()
    file = written(fs, b"")
    file.append_direct(b"a" * 700, 0)
    fs.lose_sector("/a", 0)
    with pytest.raises(OSError, match="Input/output error"):
        fs.open("/a").append_direct(b"b" * 700, 700)
    file.append_direct(b"b" * 700, 700)
    file.datasync()
    fs.power_loss()
    assert fs.open("/a").pread(1400, 0) == b"a" * 700 + b"b" * 700


def test_a_file_is_cut_within_its_block_only_if_that_can_be_read() -> None:
    fs, file = with_a_lost_sector()
    with pytest.raises(OSError, match="Input/output error"):
        file.truncate(BLOCK_SIZE + 9)
    file.truncate(BLOCK_SIZE)
    file.truncate(2 * BLOCK_SIZE)
    assert file.pread(BLOCK_SIZE, BLOCK_SIZE) == bytes(BLOCK_SIZE)
    copy = fs.copy()
    fs.lose_sector("/a", 0)
    assert copy.open("/a").pread(1, 0) == b"a"
    with pytest.raises(OSError, match="Input/output error"):
        fs.copy().open("/a").pread(1, 0)
