"""Which checkpoints stay: the newest two, and what a peer is fetching."""

from __future__ import annotations

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.state.checkpoint import Checkpoint, Checkpoints, encode_checkpoint
from tests.store.small_logs import simulated

DIRECTORY = "/data/state"


def checkpoint(index: int) -> Checkpoint:
    return Checkpoint(index, 100 * index, 0, 1, ((1, 0),), index, b"state of %d" % index)


def opened(*indexes: int) -> tuple[SimulatedFileSystem, Checkpoints]:
    fs = simulated()
    fs.make_directories(DIRECTORY)
    checkpoints = Checkpoints(fs, DIRECTORY)
    for index in indexes:
        checkpoints.save(checkpoint(index))
    return fs, checkpoints


def names(fs: SimulatedFileSystem) -> list[int]:
    return sorted(int(name.removeprefix("checkpoint-")) for name in fs.list_directory(DIRECTORY))


def test_the_newest_two_are_kept() -> None:
    fs, checkpoints = opened(1, 2, 3)
    assert names(fs) == checkpoints.indexes == [2, 3]


def test_a_checkpoint_stays_until_a_peer_has_fetched_it() -> None:
    """However many are saved meanwhile: a large one takes longer than the pause between two."""
    fs, checkpoints = opened(1)
    index, size, fetched = checkpoints.read_piece(-1, 0, 8)
    saved = 1
    while len(fetched) < size:
        saved += 1
        checkpoints.save(checkpoint(saved))
        found, _, piece = checkpoints.read_piece(index, len(fetched), 3)
        assert found == 1
        fetched += piece
    assert saved > 5
    assert fetched == encode_checkpoint(checkpoint(1))
    checkpoints.save(checkpoint(20))
    checkpoints.save(checkpoint(21))
    assert names(fs) == [20, 21]
    assert checkpoints.read_piece(index, 0, 8) == (-1, 0, b"")


def test_recovery_needs_none_that_is_kept_for_a_peer() -> None:
    """So it holds up no expiry, and goes with the log behind it."""
    fs, checkpoints = opened(1, 2)
    checkpoints.read_piece(1, 0, 8)
    checkpoints.save(checkpoint(3))
    assert checkpoints.oldest is not None
    assert checkpoints.oldest.index == 2
    checkpoints.drop_before(100)
    assert names(fs) == [1, 2, 3]
    checkpoints.drop_before(101)
    assert names(fs) == [2, 3]
    assert checkpoints.read_piece(1, 8, 8) == (-1, 0, b"")


def test_what_a_fetch_left_is_the_room_of_the_next_save() -> None:
    """On a full disk: else no checkpoint would be saved any more."""
    fs, checkpoints = opened(1, 2)
    checkpoints.read_piece(1, 0, 8)
    checkpoints.save(checkpoint(3))
    fs.capacity = fs.used_bytes() + 10
    for _ in range(2):
        checkpoints.read_piece(1, 8, 8)
        with pytest.raises(OSError, match="space"):
            checkpoints.save(checkpoint(4))
        assert names(fs) == [1, 2, 3]
    checkpoints.save(checkpoint(4))
    assert names(fs) == [3, 4]


def test_a_checkpoint_alone_ends_every_fetch() -> None:
    fs, checkpoints = opened(1, 2)
    assert checkpoints.read_piece(1, 0, 8)[0] == 1
    checkpoints.save(checkpoint(3), alone=True)
    assert names(fs) == [3]
    assert checkpoints.read_piece(1, 8, 8) == (-1, 0, b"")


def test_what_was_kept_for_a_peer_goes_after_a_restart() -> None:
    fs, checkpoints = opened(1, 2)
    checkpoints.read_piece(1, 0, 8)
    checkpoints.save(checkpoint(3))
    assert names(fs) == [1, 2, 3]
    restarted = Checkpoints(fs, DIRECTORY)
    assert [each.index for each in restarted.load()] == [1, 2, 3]
    restarted.save(checkpoint(4))
    assert names(fs) == [3, 4]
