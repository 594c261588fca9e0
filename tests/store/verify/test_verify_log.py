"""The offline check of the log and of the small files beside it."""

from __future__ import annotations

from itertools import product

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.state.replication_evidence_file import ReplicationEvidenceFile, SavedEvidence
from store.verify import FindingKind
from tests.store.sample_replica import SEGMENT_SIZE, Replica, write_replica
from tests.store.small_logs import simulated
from tests.store.verify.checked_replica import DIRECTORY, MARK, check, only, place, where
from tests.support.search_effort import sample

CHECKPOINT = 30


# --- the log


@pytest.mark.parametrize(
    ("index", "byte"),
    sample(product([1, 17, 21, MARK], [0, 4, 8, 16, 24, 32, 36, 40, 44, 48, 100, 300])),
)
def test_a_flipped_bit_in_an_entry_is_found_at_that_entry(
    fs: SimulatedFileSystem, replica: Replica, index: int, byte: int
) -> None:
    path, start = place(replica.entries[index].position)
    fs.flip_bit(path, start + byte + 3)
    assert where(only(fs)) == (FindingKind.ENTRY, path, start, index, index)


def test_zeros_over_several_entries_are_one_finding(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    first, behind = replica.entries[12], replica.entries[14]
    path, start = place(first.position)
    assert place(behind.position)[0] == path
    fs.overwrite(path, bytes(behind.position - first.position), start)
    assert where(only(fs)) == (FindingKind.ENTRY, path, start, 12, 13)


def test_a_missing_segment_is_found_with_the_entries_it_held(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    path = f"{DIRECTORY}/commitlog/{SEGMENT_SIZE:020d}"
    held = [entry.index for entry in replica.entries if place(entry.position)[0] == path]
    fs.vanish(path)
    assert where(only(fs)) == (FindingKind.SEGMENT, path, 0, held[0], held[-1])


def test_a_segment_cut_short_is_found_where_it_ends(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    path, byte = place(replica.entries[MARK].position)
    fs.cut(path, byte + 10)
    assert where(only(fs)) == (FindingKind.ENTRY, path, byte, MARK, MARK)


def test_an_entry_that_ends_with_its_file_is_told_in_a_sentence(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    entry = replica.entries[7]
    path, byte = place(entry.position)
    for left, told in (
        (50, f"expected entry 7 with length {entry.size}, found length 50, cut short; "),
        (20, "expected entry 7 with header length 48, found header length 20, cut short; "),
    ):
        fs.cut(path, byte + left)
        assert told in str(only(fs))


def test_a_segment_that_is_too_long_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = f"{DIRECTORY}/commitlog/{0:020d}"
    fs.overwrite(path, b"more", SEGMENT_SIZE)
    assert where(only(fs)) == (FindingKind.SEGMENT, path, SEGMENT_SIZE, None, None)


def test_a_misplaced_segment_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    path = f"{DIRECTORY}/commitlog/{77:020d}"
    fs.open(path, create=True).close()
    assert where(only(fs)) == (FindingKind.SEGMENT, path, 0, None, None)


@pytest.mark.parametrize("byte", [0, 3, 7])
def test_damaged_padding_is_found(fs: SimulatedFileSystem, replica: Replica, byte: int) -> None:
    last = [entry for entry in replica.entries if entry.end < SEGMENT_SIZE][-1]
    path, start = place(last.end)
    fs.flip_bit(path, start + byte)
    finding = only(fs)
    assert (finding.kind, finding.path, finding.position) == (FindingKind.PADDING, path, start)


def test_an_entry_from_another_log_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    other = write_replica(simulated(), "n1")
    path, start = place(replica.entries[5].position)
    foreign = bytearray(other.entries[5].data)
    foreign[36:40] = b"\1\2\3\4"
    fs.overwrite(path, foreign, start)
    assert where(only(fs)) == (FindingKind.ENTRY, path, start, 5, 5)


# --- the small files


@pytest.mark.parametrize(("name", "kind"), [("vote", FindingKind.VOTE), ("mark", FindingKind.MARK)])
def test_one_damaged_slot_is_found(
    fs: SimulatedFileSystem, replica: Replica, name: str, kind: FindingKind
) -> None:
    path = f"{DIRECTORY}/state/{name}"
    fs.flip_bit(path, 512 + 9)
    assert where(only(fs)) == (kind, path, 512, None, None)


def test_what_members_hold_is_checked_where_it_is_there(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    state = f"{DIRECTORY}/state"
    ReplicationEvidenceFile(fs, state).save([SavedEvidence("n1", 5, 1)])
    assert check(fs) == []
    fs.flip_bit(f"{state}/held", 9)
    assert where(only(fs)) == (FindingKind.HELD, f"{state}/held", 0, None, None)
    fs.flip_bit(f"{state}/held", 512 + 9)
    found = only(fs)
    assert (found.kind, found.found) == (FindingKind.HELD, "neither is whole")
    assert "remove state/held" in found.advice


def test_a_vote_below_the_last_term_is_found(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    old = fs.visible_bytes(f"{DIRECTORY}/state/vote")
    replica.new_term()
    replica.put("orders", 0, 1)
    replica.mark()
    replica.close()
    fs.overwrite(f"{DIRECTORY}/state/vote", old, 0)
    assert where(only(fs)) == (FindingKind.VOTE, f"{DIRECTORY}/state/vote", 0, 0, 0)


def test_a_missing_vote_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    fs.vanish(f"{DIRECTORY}/state/vote")
    assert where(only(fs)) == (FindingKind.VOTE, f"{DIRECTORY}/state/vote", 0, None, None)


def test_a_mark_of_another_entry_is_found(fs: SimulatedFileSystem, replica: Replica) -> None:
    other = simulated()
    twin = Replica(other)
    twin.no_op()
    for number in range(1, MARK + 1):
        twin.put("orders", 0, 1, first=number)
    twin.mark()
    twin.close()
    path = f"{DIRECTORY}/state/mark"
    fs.overwrite(path, other.visible_bytes(path), 0)
    assert where(only(fs)) == (FindingKind.MARK, path, 0, MARK, MARK)


@pytest.mark.parametrize("index", [15, CHECKPOINT])
def test_a_damaged_checkpoint_is_found(
    fs: SimulatedFileSystem, replica: Replica, index: int
) -> None:
    path = f"{DIRECTORY}/state/checkpoint-{index:020d}"
    fs.flip_bit(path, 40)
    assert where(only(fs)) == (FindingKind.CHECKPOINT, path, 8, None, None)


def test_a_damaged_format_file_is_found_and_nothing_else_checked(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    path = f"{DIRECTORY}/state/format"
    fs.flip_bit(path, 30)
    finding = only(fs)
    assert (finding.kind, finding.path) == (FindingKind.FORMAT, path)
