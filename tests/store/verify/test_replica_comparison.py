"""Replicas of a group are compared over what each knows to be committed."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DataLockedError
from store.io.two_slot_file import SLOT_SIZE, decode_slot, encode_slot
from store.log.entry import EntryKind, build_entry
from store.log.layout import segment_name, segment_start
from store.message.batch import QueueRun
from store.verify import Finding, FindingKind, Verification, verify_replicas
from store.verify.replica_comparison import compare_replicas
from store.verify.replica_report import ReplicaReport
from tests.store.sample_replica import SEGMENT_SIZE, Replica, message
from tests.store.small_logs import simulated

ENTRIES = 30


def fill(replica: Replica, first: int, end: int, salt: int = 0) -> None:
    """Entries ``first`` to ``end``; another salt gives other messages of the same size."""
    for number in range(first, end):
        messages = [message(number + salt), message(number + salt + 200)]
        replica.send([QueueRun("orders", 0, 2 * number, messages)])


def written(
    fs: SimulatedFileSystem,
    node: str,
    *,
    end: int = ENTRIES,
    marked: int = ENTRIES - 1,
    fork: int | None = None,
    checkpoint: bool = False,
) -> Replica:
    """A stopped replica whose entries are other ones from index ``fork`` on.

    ``checkpoint``: one of the last entry, so that the entry index has all rows. Else it has none.
    """
    replica = Replica(fs, node)
    fill(replica, 0, end if fork is None else fork)
    if fork is not None:
        fill(replica, fork, end, salt=100)
    if checkpoint:
        replica.checkpoint()
    replica.mark(marked)
    replica.close()
    return replica


def check(fs: SimulatedFileSystem, *replicas: Replica) -> Verification:
    """The check, of which the findings do not depend on how the log is cut into ranges."""
    directories = [replica.directory for replica in replicas]
    whole = verify_replicas(fs, directories)
    ranged = verify_replicas(fs, directories, range_bytes=1500)
    assert summary(ranged.findings) == summary(whole.findings)
    return whole


def give_to(fs: SimulatedFileSystem, directory: str, owner: str) -> None:
    """Makes vote and mark say that they are that node's."""
    for name in ("vote", "mark"):
        path = f"{directory}/state/{name}"
        slot = decode_slot(fs.visible_bytes(path)[:SLOT_SIZE])
        assert slot is not None
        fs.overwrite(path, encode_slot(*slot, owner) * 2, 0)


def summary(findings: list[Finding]) -> list[tuple[object, ...]]:
    return [
        (each.kind, each.replica, each.path, each.position, each.index_first, each.index_last)
        for each in findings
    ]


def told(findings: list[Finding]) -> list[tuple[str, int | None, int | None]]:
    assert all(finding.kind is FindingKind.DIVERGENCE for finding in findings)
    return [(finding.replica, finding.index_first, finding.index_last) for finding in findings]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


def test_equal_replicas_have_no_finding(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, node) for node in ("n0", "n1", "n2")]
    assert check(fs, *replicas).findings == []


def test_a_lagging_replica_is_no_finding(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1", end=12, marked=11), written(fs, "n2")]
    assert check(fs, *replicas).findings == []


def test_entries_that_a_replica_does_not_know_to_be_committed_may_differ(
    fs: SimulatedFileSystem,
) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1", fork=20, marked=19), written(fs, "n2")]
    assert check(fs, *replicas).findings == []


def test_whole_logs_that_differ_are_told_with_the_side_that_agrees(
    fs: SimulatedFileSystem,
) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1", fork=20), written(fs, "n2")]
    verification = check(fs, *replicas)
    assert told(verification.divergences) == [("unknown", 20, 29)]
    assert verification.findings == verification.divergences
    (finding,) = verification.findings
    assert finding.majority == ("broker-a/n0", "broker-a/n2")
    assert finding.path.startswith(f"{replicas[1].directory}/commitlog/")
    assert finding.found.endswith(" in broker-a/n1")


@pytest.mark.parametrize("forged", [(1,), (0, 1)])
def test_who_contradicts_the_own_mark_is_accused_and_nobody_else(
    fs: SimulatedFileSystem, forged: tuple[int, ...]
) -> None:
    """Also where they are two of three, and agree."""
    replicas = [
        written(fs, f"n{number}", fork=20 if number in forged else None) for number in range(3)
    ]
    right = written(fs, "n3")
    for number in forged:
        mark = fs.visible_bytes(f"{right.directory}/state/mark")
        fs.overwrite(f"{replicas[number].directory}/state/mark", mark, 0)
        give_to(fs, replicas[number].directory, f"broker-a/n{number}")
    found = check(fs, *replicas).findings
    names = {f"broker-a/n{number}" for number in forged}
    assert {each.replica for each in found if each.kind is FindingKind.DIVERGENCE} == names
    assert {each.replica for each in found} == names


def test_two_replicas_that_differ_leave_the_culprit_unknown(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1", fork=20)]
    assert told(check(fs, *replicas).findings) == [("unknown", 20, 29)]


def test_three_replicas_that_all_differ_leave_the_culprit_unknown(
    fs: SimulatedFileSystem,
) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1", fork=20), Replica(fs, "n2")]
    fill(replicas[2], 0, 20)
    fill(replicas[2], 20, ENTRIES, salt=50)
    replicas[2].mark()
    replicas[2].close()
    assert told(check(fs, *replicas).findings) == [("unknown", 20, 29)]


def test_each_of_two_culprits_is_told_where_it_begins_to_differ(fs: SimulatedFileSystem) -> None:
    nodes = ("n0", "n1", "n2", "n3", "n4")
    forks = (None, 20, None, 7, None)
    replicas = [written(fs, node, fork=fork) for node, fork in zip(nodes, forks, strict=True)]
    found = told(check(fs, *replicas).findings)
    assert found == [("unknown", 7, 29), ("unknown", 20, 29)]


def test_a_damaged_entry_is_told_once(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, node) for node in ("n0", "n1", "n2")]
    position = replicas[1].entries[5].position
    fs.flip_bit(f"{replicas[1].directory}/commitlog/{0:020d}", position + 70)
    verification = check(fs, *replicas)
    assert [(each.kind, each.replica) for each in verification.findings] == [
        (FindingKind.ENTRY, "broker-a/n1")
    ]


def test_only_the_damaged_entry_is_told_if_another_replica_knows_where_the_next_one_is(
    fs: SimulatedFileSystem,
) -> None:
    """The replica itself has no entry index there, and the header with the size is lost."""
    nodes = ("n0", "n1", "n2")
    replicas = [written(fs, node, checkpoint=node != "n1") for node in nodes]
    entry = replicas[1].entries[5]
    path = f"{replicas[1].directory}/commitlog/{segment_name(0)}"
    fs.overwrite(path, bytes(entry.size), entry.position)
    (finding,) = check(fs, *replicas).findings
    assert (finding.kind, finding.replica) == (FindingKind.ENTRY, "broker-a/n1")
    assert (finding.index_first, finding.index_last) == (5, 5)


def test_entries_with_equal_crcs_and_other_bytes_are_told(fs: SimulatedFileSystem) -> None:
    reports = []
    for node, body in (("n0", b"sheep"), ("n1", collision(b"sheep")), ("n2", b"sheep")):
        replica = Replica(fs, node)
        replica.no_op()
        entry = build_entry(
            EntryKind.DATA, 1, 1, replica.end, replica.entries[-1].chain_crc, [body, bytes(20)]
        )
        replica.take(entry)
        replica.no_op()
        replica.mark()
        replica.close()
        reports.append(bare_report(replica))
    [finding] = compare_replicas(fs, reports)
    assert told([finding]) == [("unknown", 1, 1)]
    assert (finding.path, finding.position) == (
        f"{reports[1].directory}/commitlog/{0:020d}",
        96 + 0,
    )


def test_what_follows_a_padding_may_differ(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, "n0", end=60, marked=59), written(fs, "n1", end=60, marked=59)]
    last = [entry for entry in replicas[0].entries if entry.end < SEGMENT_SIZE][-1]
    assert last.end + 8 < SEGMENT_SIZE
    fs.overwrite(f"{replicas[0].directory}/commitlog/{0:020d}", b"x", last.end + 8)
    assert check(fs, *replicas).findings == []


def test_replicas_of_different_groups_are_not_compared(fs: SimulatedFileSystem) -> None:
    one = written(fs, "n0")
    other_fs = simulated()
    written(other_fs, "n1", fork=3)
    for path in other_fs.files():
        target = path.replace("broker-a", "broker-b")
        fs.make_directories(target.rpartition("/")[0])
        fs.open(target, create=True).pwrite(other_fs.visible_bytes(path), 0)
    other = "/data/broker-b/n1"
    format_path = f"{other}/state/format"
    text = fs.visible_bytes(format_path).rpartition(b"crc32c")[0].replace(b"broker-a", b"broker-b")
    fs.overwrite(format_path, text + b"crc32c %08x\n" % crc32c(text), 0)
    give_to(fs, other, "broker-b/n1")
    found = verify_replicas(fs, [one.directory, other]).findings
    assert [(each.kind, each.replica, each.path, each.found) for each in found] == [
        (
            FindingKind.FORMAT,
            f"{group}/{node}",
            f"/data/{group}/{node}/state/format",
            "the groups broker-a, broker-b",
        )
        for group, node in (("broker-a", "n0"), ("broker-b", "n1"))
    ]


def test_all_replicas_stay_locked_until_the_end(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1")]
    refused: list[bool] = []

    def open_first(_size: int) -> None:
        with pytest.raises(DataLockedError):
            Replica(fs, "n0")
        refused.append(True)

    verify_replicas(fs, [replica.directory for replica in replicas], open_first)
    assert refused
    Replica(fs, "n0")


def test_a_directory_that_is_named_twice_is_checked_once(fs: SimulatedFileSystem) -> None:
    directory = written(fs, "n0").directory
    assert len(verify_replicas(fs, [directory, directory + "/"]).replicas) == 1


def test_two_copies_of_one_replica_are_compared(fs: SimulatedFileSystem) -> None:
    written(fs, "n0", fork=9)
    directory = written(fs, "n1").directory
    forked = "/data/broker-a/n0"
    fs.overwrite(f"{forked}/state/format", fs.visible_bytes(f"{directory}/state/format"), 0)
    give_to(fs, forked, "broker-a/n1")
    twice, *findings = verify_replicas(fs, [forked, directory]).findings
    assert (twice.kind, twice.path) == (FindingKind.FORMAT, f"{directory}/state/format")
    assert twice.found == f"the disk of broker-a/n1 a second time, as in {forked}"
    assert told(findings) == [("unknown", 9, 29)]


def test_the_json_has_every_replica_and_finding(fs: SimulatedFileSystem) -> None:
    document = check(fs, written(fs, "n0"), written(fs, "n1", fork=20)).to_json()
    assert document["consistent"] is False
    assert isinstance(document["replicas"], list)
    assert [replica["replica"] for replica in document["replicas"]] == [
        "broker-a/n0",
        "broker-a/n1",
    ]
    assert isinstance(document["findings"], list)
    assert [finding["kind"] for finding in document["findings"]] == ["divergence"]


def collision(body: bytes) -> bytes:
    """Other bytes of the same length with the same CRC32C as ``body``.

    A CRC is linear: what it makes of a difference does not depend on the bytes that differ. So
    enough single-bit differences of five bytes have a combination that changes nothing.
    """
    zero = crc32c(bytes(len(body)))
    basis: dict[int, tuple[int, int]] = {}
    for bit in range(8 * len(body)):
        chosen = 1 << bit
        effect = crc32c(chosen.to_bytes(len(body), "big")) ^ zero
        while effect and (top := effect.bit_length()) in basis:
            effect ^= basis[top][0]
            chosen ^= basis[top][1]
        if not effect:
            other = (int.from_bytes(body, "big") ^ chosen).to_bytes(len(body), "big")
            assert other != body
            return other
        basis[effect.bit_length()] = (effect, chosen)
    raise AssertionError("more than 32 bits always have such a combination")


def bare_report(replica: Replica) -> ReplicaReport:
    """The report of a replica whose entries need not hold batches."""
    report = ReplicaReport(replica.directory, "broker-a", replica.node, SEGMENT_SIZE)
    report.last_index = report.commit_index = len(replica.entries) - 1
    for entry in replica.entries:
        report.chains.append(entry.chain_crc)
        report.positions.append(entry.position)
        report.ends.append(entry.end)
    return report


def test_a_divergence_names_byte_and_sides(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1", fork=20), written(fs, "n2")]
    (finding,) = check(fs, *replicas).findings
    entry = replicas[0].entries[20]
    other = replicas[1].entries[20]
    at = next(at for at, (a, b) in enumerate(zip(entry.data, other.data, strict=True)) if a != b)
    start = segment_start(entry.position, SEGMENT_SIZE)
    assert finding.path == f"{replicas[1].directory}/commitlog/{segment_name(start)}"
    assert finding.position == entry.position - start + at
    assert finding.majority == ("broker-a/n0", "broker-a/n2")
    assert finding.to_json()["majority"] == finding.majority


def test_damage_names_the_replicas_that_do_not_have_it(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, "n0"), written(fs, "n1"), written(fs, "n2")]
    fs.flip_bit(f"{replicas[2].directory}/commitlog/{segment_name(0)}", 60, 1)
    (finding,) = check(fs, *replicas).findings
    assert (finding.replica, finding.majority) == ("broker-a/n2", ("broker-a/n0", "broker-a/n1"))
    assert finding.position == 60
    fs.flip_bit(f"{replicas[1].directory}/commitlog/{segment_name(0)}", 61, 1)
    assert [finding.majority for finding in check(fs, *replicas).findings] == [(), ()]
