"""A snapshot holds exactly what its manifest says, and shares nothing that still changes."""

from __future__ import annotations

import errno
import os

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import SnapshotError
from store.replica import ReplicaStore, StoreConfig
from store.snapshot import SnapshotWriter
from store.state.snapshot_manifest import Manifest, decode_manifest
from store.verify import verify_replica, verify_replicas
from tests.store.sample_replica import GROUP, SEGMENT_SIZE, Replica
from tests.store.small_logs import simulated

TARGET = "/snap/broker-a/n0"
TIME_MS = 1_700_000_100_000


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


@pytest.fixture
def replica(fs: SimulatedFileSystem) -> Replica:
    """A replica at work: several files of each kind, and entries behind the checkpoint."""
    replica = Replica(fs)
    for number in range(40):
        replica.put("orders", number % 2, 4, first=4 * number)
        if number in (15, 30):
            replica.checkpoint()
    return replica


def take(replica: Replica, target: str = TARGET) -> Manifest:
    writer = replica.store.begin_snapshot(target, TIME_MS)
    for _copied in writer.steps():
        pass
    return writer.manifest


def manifest_of(fs: SimulatedFileSystem, target: str = TARGET) -> Manifest:
    path = f"{target}/manifest.json"
    return decode_manifest(fs.visible_bytes(path), path)


def test_a_snapshot_ends_with_the_newest_checkpoint(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    manifest = take(replica)
    entry = replica.entries[30]
    assert manifest == manifest_of(fs)
    assert (manifest.group, manifest.node, manifest.time_ms) == (GROUP, "n0", TIME_MS)
    assert (manifest.commit_index, manifest.end_position) == (30, entry.end)
    assert (manifest.term, manifest.chain_crc) == (entry.term, entry.chain_crc)


def test_a_snapshot_has_no_finding_and_nothing_behind_its_end(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    manifest = take(replica)
    report = verify_replica(fs, TARGET)
    assert report.findings == []
    assert (report.last_index, report.messages) == (30, 31 * 4)
    start = manifest.end_position - manifest.end_position % SEGMENT_SIZE
    last = fs.visible_bytes(f"{TARGET}/commitlog/{start:020d}")
    assert len(last) == manifest.end_position - start
    assert fs.list_directory(f"{TARGET}/commitlog")[-1] == f"{start:020d}"


def test_what_the_replica_does_later_does_not_reach_the_snapshot(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    take(replica)
    files = contents(fs, TARGET)
    for number in range(40, 60):
        replica.put("orders", number % 2, 4, first=4 * number)
    replica.checkpoint()
    replica.send([], [["expire", replica.entries[20].position]])
    replica.checkpoint()
    replica.checkpoint()
    replica.store.expire(replica.entries[20].position)
    replica.close()
    assert contents(fs, TARGET) == files
    assert verify_replica(fs, TARGET).findings == []


def test_a_node_can_start_from_a_snapshot(fs: SimulatedFileSystem, replica: Replica) -> None:
    take(replica)
    config = StoreConfig(GROUP, "n0", segment_size=SEGMENT_SIZE, min_free_bytes=0)
    store = ReplicaStore.open(fs, TARGET, config)
    assert store.recovered.commit_index == 30
    assert store.recovered.term == replica.term
    store.close()


def test_snapshots_of_replicas_at_different_entries_agree(fs: SimulatedFileSystem) -> None:
    targets = []
    for node, count in (("n0", 30), ("n1", 22), ("n2", 30)):
        replica = Replica(fs, node)
        for number in range(count):
            replica.put("orders", 0, 3, first=3 * number)
        replica.checkpoint()
        targets.append(f"/snap/{node}")
        take(replica, targets[-1])
        replica.close()
    assert verify_replicas(fs, targets, range_bytes=3000).findings == []


def test_where_links_are_not_possible_everything_is_copied(
    fs: SimulatedFileSystem, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_source: str, target: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)

    monkeypatch.setattr(fs, "link", refuse)
    take(replica)
    assert verify_replica(fs, TARGET).findings == []
    fs.flip_bit(f"{TARGET}/commitlog/{0:020d}", 100)
    replica.mark()
    replica.close()
    assert verify_replica(fs, replica.directory).findings == []


def test_a_failed_snapshot_leaves_nothing_and_the_replica_goes_on(
    fs: SimulatedFileSystem, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = replica.store.begin_snapshot(TARGET, TIME_MS)
    steps = writer.steps()
    next(steps)
    fs.remove(f"{replica.directory}/state/vote")
    with pytest.raises(SnapshotError, match=r"/snap/broker-a/n0: the snapshot failed: .*vote"):
        list(steps)
    assert not fs.exists(TARGET)
    replica.put("orders", 0, 1)


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("snap/n0", "absolute path"),
        ("/snap/../data", "absolute path"),
        ("/data/broker-a/n0", "live data"),
        ("/data/broker-a/n0/snap", "live data"),
        ("/data", "live data"),
    ],
)
def test_directories_that_could_harm_are_refused(replica: Replica, target: str, what: str) -> None:
    with pytest.raises(SnapshotError, match=what):
        list(replica.store.begin_snapshot(target, TIME_MS).steps())
    replica.put("orders", 0, 1)


def test_a_directory_that_is_not_empty_is_refused_and_kept(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    take(replica)
    files = contents(fs, TARGET)
    with pytest.raises(SnapshotError, match="not empty"):
        take(replica)
    assert contents(fs, TARGET) == files


def test_nothing_committed_gives_no_snapshot(fs: SimulatedFileSystem) -> None:
    with pytest.raises(SnapshotError, match="nothing yet"):
        Replica(fs).store.begin_snapshot(TARGET, TIME_MS)


def contents(fs: SimulatedFileSystem, directory: str) -> dict[str, bytes]:
    """All files below a directory."""
    found: dict[str, bytes] = {}
    for name in fs.list_directory(directory):
        path = f"{directory}/{name}"
        try:
            found |= contents(fs, path)
        except (FileNotFoundError, NotADirectoryError):
            found[path] = fs.visible_bytes(path)
    return found


def test_the_first_step_links_all_that_could_expire(
    fs: SimulatedFileSystem, replica: Replica
) -> None:
    writer: SnapshotWriter = replica.store.begin_snapshot(TARGET, TIME_MS)
    next(writer.steps())
    end = writer.manifest.end_position
    closed = [start for start in range(0, end, SEGMENT_SIZE) if start + SEGMENT_SIZE < end]
    assert fs.list_directory(f"{TARGET}/commitlog") == [f"{start:020d}" for start in closed]
    assert closed
