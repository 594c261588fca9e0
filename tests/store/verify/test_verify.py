"""Planted damage is found where it is, and nothing else; what a crash may leave is no finding."""

from __future__ import annotations

import dataclasses

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DataFormatError, DataLockedError
from store.io.atomic_file import replace_file
from store.state.snapshot_manifest import Manifest, encode_manifest
from store.verify import FindingKind, verify_replica
from tests.store.sample_replica import SEGMENT_SIZE, Replica
from tests.store.verify.checked_replica import DIRECTORY, MARK, check, only, place, where

# --- nothing wrong


def test_a_whole_replica_has_no_finding(fs: SimulatedFileSystem, replica: Replica) -> None:
    report = verify_replica(fs, DIRECTORY)
    assert report.findings == []
    assert (report.name, report.first_index, report.last_index) == ("broker-a/n0", 0, 40)
    assert (report.commit_index, report.messages) == (MARK, 120)
    assert report.end_position == replica.end


def test_a_check_changes_no_file(fs: SimulatedFileSystem, replica: Replica) -> None:
    fs.overwrite(f"{DIRECTORY}/state/vote", b"torn", 0)
    before = {path: fs.visible_bytes(path) for path in fs.files()}
    check(fs)
    assert {path: fs.visible_bytes(path) for path in fs.files()} == before


def test_a_new_replica_has_no_finding(fs: SimulatedFileSystem) -> None:
    Replica(fs).close()
    report = verify_replica(fs, DIRECTORY)
    assert (report.findings, report.last_index) == ([], -1)


def test_a_replica_without_a_checkpoint_has_no_finding(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 5)
    replica.mark()
    replica.close()
    assert check(fs) == []


def test_a_torn_tail_behind_the_mark_is_no_finding(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    path, byte = place(replica.entries[39].position)
    fs.flip_bit(path, byte + 60)
    report = verify_replica(fs, DIRECTORY)
    assert (report.findings, report.last_index) == ([], 38)


def test_rows_of_a_flush_whose_checkpoint_was_not_saved_are_no_finding(
    fs: SimulatedFileSystem,
) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 30)
    replica.checkpoint()
    replica.put("orders", 0, 25)
    replica.put("bills", 1, 3)
    replica.flush()
    replica.close()
    assert check(fs) == []


def test_rows_of_a_flush_that_the_power_cut_are_no_finding(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 10)
    replica.checkpoint()
    replica.put("orders", 0, 30)
    replica.flush()
    replica.close()
    path = f"{DIRECTORY}/consumequeue/orders/0/{0:020d}"
    fs.overwrite(path, bytes(90), 205)
    assert check(fs) == []


def test_rows_of_entries_that_a_majority_had_and_this_disk_lost_are_no_finding(
    fs: SimulatedFileSystem,
) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 10)
    replica.checkpoint()
    entry = replica.put("orders", 0, 5)
    replica.put("bills", 0, 5)
    replica.flush()
    replica.close()
    path, byte = place(entry.position)
    fs.overwrite(path, bytes(SEGMENT_SIZE - byte), byte)
    assert check(fs) == []


def test_expired_segments_are_no_finding(fs: SimulatedFileSystem, replica: Replica) -> None:
    replica = reopen(fs, replica)
    position = replica.entries[20].position
    replica.send([], [["expire", position]])
    replica.put("orders", 0, 1)
    replica.mark()
    replica.checkpoint()
    replica.put("orders", 0, 1)
    replica.checkpoint()
    replica.store.expire(position)
    for queue in replica.queues.all():
        queue.release(queue.first_offset)
    replica.close()
    report = verify_replica(fs, DIRECTORY)
    assert report.findings == []
    assert report.first_index > 0


def test_the_tail_of_a_queue_whose_rows_have_all_expired_is_no_finding(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    """No reader and no repair looks at what is left of them."""
    replica = reopen(fs, replica)
    replica.put("bills", 1, 1)
    position = replica.end
    replica.send([], [["expire", position]])
    replica.put("orders", 0, 1)
    replica.mark()
    replica.checkpoint()
    replica.put("orders", 0, 1)
    replica.checkpoint()
    replica.store.expire(position)
    queue = replica.queues.get("bills", 1)
    assert queue is not None
    assert queue.first_offset == queue.end_offset
    assert queue.tail.position >= 0
    path, byte = queue.locate(queue.end_offset - 1)
    replica.close()
    assert verify_replica(fs, DIRECTORY).findings == []
    fs.flip_bit(path, byte + 6)
    assert verify_replica(fs, DIRECTORY).findings == []


def test_a_deleted_and_recreated_topic_is_no_finding(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 25)
    replica.put("bills", 0, 3)
    replica.checkpoint()
    replica.send([], [["delete-topic", "orders", 0]])
    replica.checkpoint()
    replica.put("orders", 0, 5)
    replica.checkpoint()
    for queue in replica.queues.all():
        queue.release(queue.first_offset)
    replica.mark()
    replica.close()
    assert check(fs) == []


# --- what cannot be checked


def test_live_data_is_refused(fs: SimulatedFileSystem) -> None:
    Replica(fs)
    with pytest.raises(DataLockedError, match="stop it"):
        check(fs)


def test_a_replica_can_be_opened_again_after_a_check(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    check(fs)
    reopen(fs, replica)


def test_a_directory_that_is_no_replica_is_refused(fs: SimulatedFileSystem) -> None:
    fs.make_directories("/data/music")
    with pytest.raises(DataFormatError, match="not the data of a replica"):
        verify_replica(fs, "/data/music")


def test_a_directory_that_is_not_there_is_refused(fs: SimulatedFileSystem) -> None:
    with pytest.raises(DataFormatError, match="no such directory"):
        verify_replica(fs, "/data/nobody")


# --- snapshots


def manifest(replica: Replica, index: int) -> Manifest:
    entry = replica.entries[index]
    return Manifest(
        group="broker-a",
        node="n0",
        term=entry.term,
        first_index=0,
        commit_index=index,
        end_position=entry.end,
        chain_crc=entry.chain_crc,
        time_ms=1,
    )


def test_a_snapshot_counts_up_to_its_manifest(fs: SimulatedFileSystem, replica: Replica) -> None:
    replace_file(fs, DIRECTORY, "manifest.json", encode_manifest(manifest(replica, 33)))
    path, byte = place(replica.entries[34].position)
    fs.overwrite(path, bytes(50), byte)
    report = verify_replica(fs, DIRECTORY)
    assert (report.findings, report.last_index, report.commit_index) == ([], 33, 33)


def test_a_snapshot_whose_last_entry_is_another_is_found(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    wrong = encode_manifest(dataclasses.replace(manifest(replica, 33), chain_crc=1))
    replace_file(fs, DIRECTORY, "manifest.json", wrong)
    path = f"{DIRECTORY}/manifest.json"
    assert where(only(fs)) == (FindingKind.FORMAT, path, 0, 33, 33)
    assert only(fs).advice == "take the snapshot again into a new directory"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not JSON",
        encode_manifest(Manifest("broker-a", "n0", 1, 0, 3, 99, 1, 1)).replace(b": 99", b": 98"),
        encode_manifest(Manifest("broker-b", "n7", 1, 0, 3, 99, 1, 1)),
        encode_manifest(Manifest("broker-a", "n0", 1, 0, 3, 99, 1, 1, format_version=2)),
        encode_manifest(Manifest("broker-a", "n0", 1, 0, 1 << 40, 99, 1, 1)),
    ],
)
def test_nobody_is_told_to_remove_a_node_as_the_manifest_of_a_snapshot_is_wrong(
    fs: SimulatedFileSystem, replica: Replica, data: bytes
) -> None:
    replace_file(fs, DIRECTORY, "manifest.json", data)
    path = f"{DIRECTORY}/manifest.json"
    found = [finding for finding in verify_replica(fs, DIRECTORY).findings if finding.path == path]
    assert found
    assert {finding.advice for finding in found} == {"take the snapshot again into a new directory"}


# --- how it reads


def test_a_finding_is_one_line_and_json(fs: SimulatedFileSystem, replica: Replica) -> None:
    path, byte = place(replica.entries[7].position)
    fs.flip_bit(path, byte + 60)
    finding = only(fs)
    line = str(finding)
    assert "\n" not in line
    assert line.startswith(f"broker-a/n0: entry: {path}, byte {byte} (entry 7): expected entry 7")
    assert "with body CRC " in line
    assert finding.to_json()["kind"] == "entry"
    assert finding.to_json()["index_first"] == 7


def reopen(fs: SimulatedFileSystem, replica: Replica) -> Replica:
    """The replica started again, everything applied."""
    again = Replica(fs, replica.node)
    again.entries = list(replica.entries)
    again.queues, again.keys = replica.queues, replica.keys
    again.segment_times, again.stored_ms = replica.segment_times, replica.stored_ms
    return again
