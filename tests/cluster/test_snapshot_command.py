"""``dledger snapshot`` of a cluster at work, by its own processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.register_broker_body import encode_topic_table
from broker.server.name_server_registration import Announcement
from tests.cluster.running_cluster import RunningCluster


@pytest.fixture
def loaded(cluster: RunningCluster) -> RunningCluster:
    """Three replicas with the same messages."""
    cluster.dledger("topic", "create", "orders", "--queues", "2")
    lines = "".join(f"line {number}\n" for number in range(200))
    cluster.dledger("produce", "orders", "--batch", "20", stdin=lines)
    cluster.wait_until_level()
    return cluster


def test_a_snapshot_under_load_is_consistent_and_complete(
    loaded: RunningCluster, tmp_path: Path
) -> None:
    load = loaded.popen(
        "bench", "produce", "--namesrv", loaded.namesrv, "--seconds", "2", "--rounds", "1",
        "--batch", "64", "--inflight", "2", "--json",
    )  # fmt: skip
    try:
        found = loaded.ask("snapshot", "--out", str(tmp_path / "snap"))
    finally:
        load.communicate()

    assert found["complete"] is True
    replicas = [f"{loaded.group}/{node}" for node in ("n0", "n1", "n2")]
    assert [replica["replica"] for replica in found["replicas"]] == replicas
    checked = loaded.ask("verify", str(tmp_path / "snap"))
    assert checked["consistent"] is True
    for replica, manifest in zip(checked["replicas"], found["replicas"], strict=True):
        assert replica["last_index"] == replica["commit_index"] == manifest["commit_index"]
        assert replica["messages"] >= 200


def test_a_snapshot_is_refused_where_there_is_one_already(
    loaded: RunningCluster, tmp_path: Path
) -> None:
    snap = tmp_path / "snap"
    loaded.dledger("snapshot", "--out", str(snap))
    # Not even where a node has none there: that would be a snapshot of two moments.
    shutil.rmtree(snap / "broker-a/n1")
    before = set(snap.rglob("*"))
    done = loaded.dledger("snapshot", "--out", str(snap), code=1)
    assert "not empty; name a new directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert set(snap.rglob("*")) == before
    for node in loaded.nodes:
        assert list((loaded.data(node) / "snapshots").iterdir()) == []
    file = tmp_path / "file"
    file.write_text("mine")
    done = loaded.dledger("snapshot", "--out", str(file), code=1)
    assert "name a new directory" in done.stderr

    loaded.kill("n2")
    done = loaded.dledger("snapshot", "--out", str(tmp_path / "other"), code=1)
    assert "broker-a/n2: no answer from" in done.stderr
    assert (tmp_path / "other/broker-a/n0/manifest.json").exists()


def test_live_data_gets_no_snapshot_into_it(loaded: RunningCluster) -> None:
    before = {node: sorted(loaded.data(node).iterdir()) for node in loaded.nodes}
    done = loaded.dledger("snapshot", "--out", str(loaded.directory / "broker-a"), code=1)
    assert "not empty" in done.stderr
    inside = loaded.data("n0") / "new"
    done = loaded.dledger("snapshot", "--out", str(inside), code=1)
    assert "a snapshot cannot be in the directory of a replica" in done.stderr
    assert {node: sorted(loaded.data(node).iterdir()) for node in loaded.nodes} == before


def test_a_node_that_hangs_is_told_soon(loaded: RunningCluster, tmp_path: Path) -> None:
    pid = next(node.pid for node in loaded.view().nodes if node.node.endswith("/n2"))
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        done = loaded.dledger("snapshot", "--out", str(tmp_path / "snap"), code=1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "broker-a/n2: no answer from" in done.stderr


def leave_for_good(cluster: RunningCluster, group: str) -> None:
    """A group of one is registered, and says goodbye."""
    announcement = Announcement(
        cluster="DefaultCluster",
        broker_name=group,
        broker_id=0,
        address="127.0.0.1:1",
        http_address="127.0.0.1:1",
        term=1,
        data_version={"counter": 1, "timestamp": 0},
        topics={},
    )

    async def come_and_go(admin: AdminClient) -> None:
        body = encode_topic_table(announcement.data_version, announcement.topics).body
        code = RequestCode.REGISTER_BROKER
        await admin.ask(cluster.namesrv, code, announcement.ext(body), (body,))
        code = RequestCode.UNREGISTER_BROKER
        await admin.ask(cluster.namesrv, code, announcement.identity())

    run_admin(cluster.namesrv, come_and_go)


def test_a_group_that_was_taken_down_is_named_and_does_not_fail_the_snapshot_of_the_rest(
    loaded: RunningCluster, tmp_path: Path
) -> None:
    leave_for_good(loaded, "broker-b")
    done = loaded.dledger("snapshot", "--out", str(tmp_path / "snap"), "--json")

    found = json.loads(done.stdout)
    assert (found["complete"], found["unregistered_groups"]) == (True, ["broker-b"])
    replicas = [f"{loaded.group}/{node}" for node in ("n0", "n1", "n2")]
    assert [replica["replica"] for replica in found["replicas"]] == replicas
    [line] = done.stderr.splitlines()
    assert "no node of broker-b is registered any more" in line
