"""Planted damage is found where it is, and nothing else; what a crash may leave is no finding."""

from __future__ import annotations

import dataclasses

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DataFormatError, DataLockedError
from store.io.atomic_file import replace_file
from store.log.entry import HEADER_SIZE
from store.state.replication_evidence_file import ReplicationEvidenceFile, SavedEvidence
from store.state.snapshot_manifest import Manifest, encode_manifest
from store.verify import Finding, FindingKind, verify_replica, verify_replicas
from tests.store.sample_replica import SEGMENT_SIZE, Replica, write_replica
from tests.store.small_logs import simulated

DIRECTORY = "/data/broker-a/n0"
CHECKPOINT = 30
MARK = 37


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


@pytest.fixture
def replica(fs: SimulatedFileSystem) -> Replica:
    return write_replica(fs)


def place(position: int) -> tuple[str, int]:
    start = position - position % SEGMENT_SIZE
    return f"{DIRECTORY}/commitlog/{start:020d}", position - start


def check(fs: SimulatedFileSystem) -> list[Finding]:
    """The findings, which do not depend on how the log is cut into ranges."""
    whole = verify_replica(fs, DIRECTORY).findings
    assert verify_replicas(fs, [DIRECTORY], range_bytes=1500).findings == whole
    return whole


def only(fs: SimulatedFileSystem) -> Finding:
    findings = check(fs)
    assert len(findings) == 1, findings
    return findings[0]


def where(finding: Finding) -> tuple[FindingKind, str, int, int | None, int | None]:
    return (
        finding.kind,
        finding.path,
        finding.position,
        finding.index_first,
        finding.index_last,
    )


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
    for _, _, queue in replica.queues.all():
        queue.release(queue.first_offset)
    replica.close()
    report = verify_replica(fs, DIRECTORY)
    assert report.findings == []
    assert report.first_index > 0


def test_a_deleted_and_recreated_topic_is_no_finding(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    replica.put("orders", 0, 25)
    replica.put("bills", 0, 3)
    replica.checkpoint()
    replica.send([], [["delete-topic", "orders", 0]])
    replica.checkpoint()
    replica.put("orders", 0, 5)
    replica.checkpoint()
    for _, _, queue in replica.queues.all():
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


# --- the log


@pytest.mark.parametrize("byte", [0, 4, 8, 16, 24, 32, 36, 40, 44, 48, 100, 300])
@pytest.mark.parametrize("index", [1, 17, 21, MARK])
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


def replace_file_in(fs: SimulatedFileSystem, directory: str, name: str, data: bytes) -> None:
    fs.make_directories(directory)
    replace_file(fs, directory, name, data)


def reopen(fs: SimulatedFileSystem, replica: Replica) -> Replica:
    """The replica started again, everything applied."""
    again = Replica(fs, replica.node)
    again.entries = list(replica.entries)
    again.queues, again.keys = replica.queues, replica.keys
    again.segment_times, again.stored_ms = replica.segment_times, replica.stored_ms
    return again
