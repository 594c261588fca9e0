"""The offline check of what is derived from the log."""

from __future__ import annotations

from collections.abc import Set

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.io.atomic_file import replace_file
from store.log.entry import HEADER_SIZE
from store.verify import FindingKind, verify_replicas
from store.verify.index import consume_queue_check
from tests.store.sample_replica import Replica, write_replica
from tests.store.small_logs import simulated
from tests.store.verify.checked_replica import DIRECTORY, only, where

# --- the entry index


def test_a_wrong_row_of_the_entry_index_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = f"{DIRECTORY}/index/{8 * 32:020d}"
    fs.flip_bit(path, 2 * 32 + 11)
    assert where(only(fs)) == (FindingKind.ENTRY_INDEX, path, 64, 10, 10)


def test_a_missing_file_of_the_entry_index_is_found(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    fs.vanish(f"{DIRECTORY}/index/{8 * 32:020d}")
    finding = only(fs)
    assert (finding.kind, finding.index_first, finding.index_last) == (
        FindingKind.ENTRY_INDEX,
        8,
        15,
    )


# --- ConsumeQueues


def test_queues_are_looked_up_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each queue in the files is looked up among all: in a list that was quadratic."""
    known: list[object] = []
    monkeypatch.setattr(
        consume_queue_check, "find_extra", lambda _fs, _directory, keys, *_: known.append(keys)
    )
    fs = simulated()
    verify_replicas(fs, [write_replica(fs).directory])
    assert known
    assert all(isinstance(keys, Set) for keys in known)


def test_a_wrong_row_of_a_queue_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = f"{DIRECTORY}/consumequeue/orders/0/{400:020d}"
    fs.flip_bit(path, 3 * 20 + 5)
    assert where(only(fs)) == (FindingKind.CONSUME_QUEUE, path, 60, 12, 12)


def test_a_missing_file_of_a_queue_is_found_with_its_entries(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    fs.vanish(f"{DIRECTORY}/consumequeue/orders/0/{400:020d}")
    finding = only(fs)
    assert (finding.kind, finding.index_first, finding.index_last) == (
        FindingKind.CONSUME_QUEUE,
        11,
        20,
    )


def test_a_missing_last_file_of_a_queue_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    fs.vanish(f"{DIRECTORY}/consumequeue/bills/1/{0:020d}")
    finding = only(fs)
    assert (finding.kind, finding.index_first, finding.index_last) == (
        FindingKind.CONSUME_QUEUE,
        1,
        29,
    )


def test_a_queue_that_ends_too_early_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = f"{DIRECTORY}/consumequeue/bills/0/{0:020d}"
    fs.cut(path, 14 * 20 + 7)
    assert where(only(fs)) == (FindingKind.CONSUME_QUEUE, path, 280, 30, 30)


def test_a_row_too_many_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = f"{DIRECTORY}/consumequeue/bills/0/{0:020d}"
    row = fs.visible_bytes(path)[:20]
    fs.overwrite(path, row * 10, 15 * 20)
    finding = only(fs)
    assert (finding.kind, finding.path, finding.position) == (
        FindingKind.CONSUME_QUEUE,
        path,
        15 * 20,
    )


def test_a_queue_that_nobody_wrote_to_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    source = f"{DIRECTORY}/consumequeue/bills/0/{0:020d}"
    replace_file_in(fs, f"{DIRECTORY}/consumequeue/bills/9", f"{0:020d}", fs.visible_bytes(source))
    finding = only(fs)
    assert (finding.kind, finding.position) == (FindingKind.CONSUME_QUEUE, 0)
    assert finding.path == f"{DIRECTORY}/consumequeue/bills/9/{0:020d}"


def test_a_checkpoint_that_knows_less_of_a_queue_than_the_log_is_found(
    fs: SimulatedFileSystem,
) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 10)
    replica.flush()
    lengths = replica.lengths()
    replica.checkpoint([lengths[0]._replace(end_offset=9)])
    replica.close()
    path = f"{DIRECTORY}/state/checkpoint-{0:020d}"
    assert where(only(fs)) == (FindingKind.CHECKPOINT, path, 16, None, None)


# --- the key index


def key_files(fs: SimulatedFileSystem) -> list[str]:
    return [path for path in fs.files() if path.startswith(f"{DIRECTORY}/keyindex/")]


def test_a_flipped_bit_in_a_key_file_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = key_files(fs)[1]
    fs.flip_bit(path, 100)
    assert where(only(fs)) == (FindingKind.KEY_INDEX, path, 40, 16, 30)


@pytest.mark.parametrize("byte", [0, 8, 33])
def test_a_damaged_header_of_a_key_file_is_found(
    fs: SimulatedFileSystem, replica: Replica, byte: int
) -> None:
    path = key_files(fs)[0]
    fs.flip_bit(path, byte)
    finding = only(fs)
    assert (finding.kind, finding.path) == (FindingKind.KEY_INDEX, path)


@pytest.mark.parametrize(("number", "first", "last"), [(0, 1, 15), (1, 16, 30)])
def test_a_missing_key_file_is_found_with_its_entries(
    fs: SimulatedFileSystem, replica: Replica, number: int, first: int, last: int
) -> None:
    fs.vanish(key_files(fs)[number])
    assert where(only(fs)) == (
        FindingKind.KEY_INDEX,
        f"{DIRECTORY}/keyindex",
        0,
        first,
        last,
    )


def test_key_rows_of_other_messages_are_found(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    entry = replica.put("orders", 0, 4)
    other = Replica(simulated())
    other.put("orders", 0, 4, first=100)
    other.checkpoint()
    replica.checkpoint()
    replica.close()
    path = f"{DIRECTORY}/keyindex/{entry.position + HEADER_SIZE:020d}"
    assert isinstance(other.fs, SimulatedFileSystem)
    fs.overwrite(path, other.fs.visible_bytes(path), 0)
    finding = only(fs)
    assert (finding.kind, finding.path, finding.index_first) == (FindingKind.KEY_INDEX, path, None)


def replace_file_in(fs: SimulatedFileSystem, directory: str, name: str, data: bytes) -> None:
    fs.make_directories(directory)
    replace_file(fs, directory, name, data)
