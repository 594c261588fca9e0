"""A disk is replaced by an old copy of itself, and the leader that knew what it held is gone."""

from __future__ import annotations

import shutil
import time
import tomllib
from pathlib import Path

from dledger.raft.configuration import LOST_INCARNATION, Configuration
from store.io.os_filesystem import OsFileSystem
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, decode_slot
from store.log.entry import EntryKind
from store.replica import ReplicaStore, StoreConfig
from store.state.replication_evidence_file import unpack_evidence
from tests.cluster.running_cluster import RunningCluster

SAVED_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.05
ELECTIONS_SECONDS = 3.0


def configurations(data: Path) -> list[tuple[int, Configuration]]:
    """Those in the log of a stopped node, each with its term."""
    config = tomllib.loads((data / "node.toml").read_text())
    settings = StoreConfig(config["group"], config["node"], config["segment_size"])
    store = ReplicaStore.open(OsFileSystem(), str(data), settings)
    try:
        entries = store.read_entries(store.first_index, store.last_index, 1 << 30)
        return [
            (entry.term, Configuration.unpack(entry.body))
            for entry in entries
            if entry.kind is EntryKind.CONFIGURATION
        ]
    finally:
        store.close()


def saved_index(data: Path, node: str) -> int:
    """Up to where a running member has saved that the disk of that node holds the log."""
    path = data / "state" / "held"
    found = path.read_bytes() if path.exists() else b""
    slots = [decode_slot(found[at * SLOT_SIZE :][:SLOT_SIZE]) for at in range(SLOT_COUNT)]
    _, payload = max((slot for slot in slots if slot is not None), default=(0, b"\x90"))
    held = unpack_evidence(payload, str(path))
    return max((each.last_index for each in held if each.node == node), default=-1)


def wait_until_others_saved(cluster: RunningCluster, node: str) -> None:
    """Returns when all others have saved that the disk of that node holds what it holds now."""
    last_index = cluster.wait_until_level().nodes[0].last_index
    assert last_index is not None
    others = [cluster.data(other) for other in cluster.nodes if other != node]
    ends_at = time.monotonic() + SAVED_SECONDS
    while min(saved := [saved_index(data, node) for data in others]) < last_index:
        assert time.monotonic() < ends_at, f"saved is {saved}, {node} holds {last_index}"
        time.sleep(LOOK_AGAIN_SECONDS)


def copy_a_follower(cluster: RunningCluster, copy: Path) -> tuple[str, str, str]:
    """Copies the disk of a follower, and stores more.

    Returns the leader, that follower and the other one.
    """
    cluster.dledger("topic", "create", "orders")
    cluster.dledger("produce", "orders", stdin="early\n" * 20)
    first = cluster.leader()
    copied, second = (node for node in cluster.nodes if node != first)
    cluster.wait_until_level()
    shutil.copytree(cluster.data(copied), copy)
    cluster.dledger("produce", "orders", stdin="late\n" * 20)
    wait_until_others_saved(cluster, copied)
    return first, copied, second


def test_an_old_copy_of_a_disk_is_recognised_by_a_leader_that_never_heard_it_confirm(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    _, copied, second = copy_a_follower(cluster, tmp_path / "copy")
    cluster.kill(copied)
    term = cluster.ask("leader", "transfer", "broker-a", second)["term"]
    shutil.rmtree(cluster.data(copied))
    (tmp_path / "copy").rename(cluster.data(copied))
    cluster.start(copied)
    cluster.wait_until_answering(copied)
    told = cluster.ask(
        *("consume", "orders", "--group", "readers", "--from", "earliest"),
        *("--count", "40", "--timeout", "30"),
    )
    assert sorted(message["body"] for message in told) == ["early"] * 20 + ["late"] * 20
    cluster.wait_until_level()
    cluster.stop()

    found = configurations(cluster.data(second))
    # Of that term, unless another has led since: then it is the others' turn to have noted it.
    noted = [members.incarnations[copied] for at, members in found if at >= term]
    assert noted[:1] == [LOST_INCARNATION], "the copy counted as if it held what it lost"
    said = f"the disk of {copied} holds less than it held"
    logs = [cluster.data(node) / "log" / "node.log" for node in cluster.nodes if node != copied]
    assert any(said in log.read_text() for log in logs)
    assert noted[-1] == found[0][1].incarnations[copied], "it was not refilled"


def test_an_old_copy_of_a_disk_is_recognised_after_all_others_were_restarted(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """It gets no vote to count until the one comes back that has what it lacks."""
    first, copied, second = copy_a_follower(cluster, tmp_path / "copy")
    for node in cluster.nodes:
        cluster.kill(node)
    shutil.rmtree(cluster.data(copied))
    (tmp_path / "copy").rename(cluster.data(copied))
    for node in (copied, second):
        cluster.start(node)
        cluster.wait_until_answering(node)
    time.sleep(ELECTIONS_SECONDS)
    roles = {each.node.rpartition("/")[2]: each.role for each in cluster.view().nodes}
    assert "leader" not in (roles[copied], roles[second])
    cluster.start(first)
    told = cluster.ask(
        *("consume", "orders", "--group", "readers", "--from", "earliest"),
        *("--count", "40", "--timeout", "30"),
    )
    assert sorted(message["body"] for message in told) == ["early"] * 20 + ["late"] * 20
    cluster.wait_until_level()
    cluster.stop()
    disks = [members.incarnations[copied] for _, members in configurations(cluster.data(second))]
    assert LOST_INCARNATION in disks, "the copy counted as if it held what it lost"
    assert disks[-1] == disks[0], "it was not refilled"
