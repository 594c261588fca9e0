"""A restored replica holds what the snapshot holds, and an entry that names its new members."""

from __future__ import annotations

import pytest

from dledger.raft.configuration import Configuration
from simulator.engine.disk import SimulatedFileSystem
from store.errors import SnapshotError
from store.replica import ReplicaStore, StoreConfig
from store.restore import SnapshotSource, restore_replica
from store.state.format_file import decode_format
from store.verify import verify_replicas
from tests.store.sample_replica import GROUP, SEGMENT_SIZE, Replica
from tests.store.small_logs import simulated

SNAPSHOT = "/snap/broker-a/n0"
MEMBERS = ("n0", "n1", "n2", "n3", "n4")
CONFIGURATION = Configuration(MEMBERS).pack()
NEW_GROUP = "broker-x"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


@pytest.fixture(params=["all", "some expired"])
def snapshot(fs: SimulatedFileSystem, request: pytest.FixtureRequest) -> SnapshotSource:
    """Of a replica of three members in their second term."""
    replica = Replica(fs, incarnation=77)
    replica.configure(("n0", "n1", "n2"))
    for number in range(40):
        if number == 20:
            replica.new_term()
        replica.put("orders", number % 2, 4, first=4 * number)
        if number in (15, 30):
            replica.checkpoint()
    if request.param == "some expired":
        replica.send([], [["expire", SEGMENT_SIZE]])
        replica.checkpoint()
        replica.checkpoint()
        replica.store.expire(SEGMENT_SIZE)
        assert replica.store.first_index > 0
    replica.mark()
    writer = replica.store.begin_snapshot(SNAPSHOT, 1_700_000_100_000)
    for _copied in writer.steps():
        pass
    replica.store.close()
    return SnapshotSource.open(fs, SNAPSHOT)


def member(node: str, segment_size: int = SEGMENT_SIZE) -> StoreConfig:
    return StoreConfig(
        NEW_GROUP,
        node,
        segment_size=segment_size,
        min_free_bytes=0,
        index_rows_per_file=8,
        incarnation=1000 + int(node[1:]),
    )


def restore(fs: SimulatedFileSystem, snapshot: SnapshotSource, node: str) -> str:
    target = f"/data/{NEW_GROUP}/{node}"
    fs.make_directories(target)
    copied = sum(restore_replica(snapshot, fs, target, member(node), CONFIGURATION))
    assert copied == sum(size for _name, size in snapshot.files())
    return target


def test_members_are_equal_and_have_no_finding(
    fs: SimulatedFileSystem, snapshot: SnapshotSource
) -> None:
    replicas = [restore(fs, snapshot, node) for node in MEMBERS]
    found = verify_replicas(fs, replicas)
    assert found.findings == []
    manifest = snapshot.manifest
    for report, node in zip(found.replicas, MEMBERS, strict=True):
        assert (report.group, report.node) == (NEW_GROUP, node)
        assert report.first_index == manifest.first_index
        assert report.last_index == report.commit_index == manifest.commit_index + 1
        assert report.last_term == manifest.term + 1


def test_all_is_durable_and_the_log_names_the_voters(
    fs: SimulatedFileSystem, snapshot: SnapshotSource
) -> None:
    target = restore(fs, snapshot, "n3")
    fs.power_loss(keep=0)
    store = ReplicaStore.open(fs, target, member("n3"))
    found, manifest = store.recovered, snapshot.manifest
    assert (found.term, found.vote) == (manifest.term + 1, "")
    assert found.commit_index == found.last_index == manifest.commit_index + 1
    assert found.incarnation == 1003
    assert [Configuration.unpack(each.body).voters for each in found.configurations] == [MEMBERS]
    assert found.held == ()
    store.close()


def test_the_snapshot_stays_as_it_was(fs: SimulatedFileSystem, snapshot: SnapshotSource) -> None:
    names = [f"{SNAPSHOT}/{name}" for name, _size in snapshot.files()]
    names += [f"{SNAPSHOT}/manifest.json", f"{SNAPSHOT}/state/format", f"{SNAPSHOT}/state/vote"]
    before = {name: fs.visible_bytes(name) for name in names}
    restore(fs, snapshot, "n0")
    assert {name: fs.visible_bytes(name) for name in names} == before
    path = f"{SNAPSHOT}/state/format"
    assert decode_format(fs.visible_bytes(path), path).group == GROUP


def test_what_is_no_snapshot_or_has_other_segments_is_refused(
    fs: SimulatedFileSystem, snapshot: SnapshotSource
) -> None:
    with pytest.raises(SnapshotError, match=r"there is no manifest\.json"):
        SnapshotSource.open(fs, f"/data/{GROUP}/n0")
    with pytest.raises(SnapshotError, match="segment_size = 16384"):
        list(restore_replica(snapshot, fs, "/other", member("n0", 16384), CONFIGURATION))
    assert not fs.exists("/other")
