"""``dledger restore``: a snapshot of a cluster at work becomes another cluster."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.cli.local_cluster.local_cluster import open_cluster
from broker.cli.local_cluster.readiness import wait_until_serving
from tests.cluster.running_cluster import RunningCluster, while_needed
from tests.cluster.server_starter import start_server

PORTS = ("--namesrv-port", "0", "--port", "0", "--http-port", "0")
MESSAGES = 300


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts the cluster in a directory; all are stopped at the end."""
    clusters = []

    def start(directory: Path) -> RunningCluster:
        local = open_cluster(directory)
        local.start(start_server)
        clusters.append(local)
        wait_until_serving(local)
        return RunningCluster(local)

    yield start
    for local in clusters:
        local.stop()


@pytest.fixture
def snapshot(cluster: RunningCluster, tmp_path: Path) -> Path:
    """Of a cluster with messages, a topic of its own settings, and a group half-way."""
    cluster.dledger("topic", "create", "orders", "--queues", "3", "--perm", "rw", "--order")
    lines = "".join(f"line {number}\n" for number in range(MESSAGES))
    cluster.dledger("produce", "orders", "--batch", "20", stdin=lines)
    cluster.dledger("group", "create", "readers")
    cluster.dledger(
        "consume", "orders", "--group", "readers", "--from", "earliest", "--count", "100"
    )
    cluster.wait_until_level()
    cluster.dledger("snapshot", "--out", str(tmp_path / "snap"))
    return tmp_path / "snap"


def messages(cluster: RunningCluster, topic: str = "orders") -> list[tuple[Any, ...]]:
    """Queue, offset and body of all messages, in order."""
    found = cluster.ask("consume", topic, "--offset", "0")
    return sorted((each["queue_id"], each["queue_offset"], each["body"]) for each in found)


def described(cluster: RunningCluster) -> tuple[Any, Any]:
    """Topic and consumer group, without the names of brokers and what time changes."""
    topic = cluster.ask("topic", "describe", "orders")
    for name in ("brokers", "retention_ms"):
        topic[name] = [*topic[name].values()]  # by address
    group = cluster.ask("group", "describe", "readers")
    return without(topic, "broker"), without(without(group, "broker"), "lag_ms")


def without(document: Any, name: str) -> Any:
    if isinstance(document, dict):
        return {key: without(value, name) for key, value in document.items() if key != name}
    if isinstance(document, list):
        return [without(value, name) for value in document]
    return document


@pytest.mark.parametrize(("nodes", "group"), [(1, "broker-a"), (3, "broker-x")])
def test_a_restored_cluster_serves_what_the_snapshot_holds(
    *, cluster: RunningCluster, snapshot: Path, tmp_path: Path, started: Any, nodes: int, group: str
) -> None:
    expected = messages(cluster), described(cluster)
    assert len(expected[0]) == MESSAGES
    cluster.stop()
    target = tmp_path / "restored"
    done = cluster.ask(
        *("restore", str(snapshot), "--to", str(target), "--nodes", str(nodes), *PORTS),
        *("--rename", f"broker-a={group}"),
    )
    assert [each["replica"] for each in done["replicas"]] == [f"{group}/n{k}" for k in range(nodes)]
    assert cluster.ask("verify", str(target))["consistent"] is True

    restored = started(target)
    assert (messages(restored), described(restored)) == expected
    assert restored.group == group

    # It is a group of its own: it elects, takes messages, and survives the loss of a node.
    restored.dledger("produce", "orders", stdin="after\n")
    if nodes == 3:
        restored.kill(restored.leader())
        restored.leader()
        restored.dledger("produce", "orders", stdin="later\n")
    bodies = [body for _queue, _offset, body in messages(restored)]
    assert {"after", *(["later"] if nodes == 3 else [])} <= {*bodies}
    restored.stop()
    assert cluster.ask("verify", str(target))["consistent"] is True


def test_each_node_of_a_group_is_restored_by_its_own_settings(
    cluster: RunningCluster, snapshot: Path, tmp_path: Path, started: Any
) -> None:
    """As on three machines: settings by hand, and one restore for each node."""
    expected = messages(cluster)
    cluster.stop()
    target = tmp_path / "machines"
    for node in cluster.nodes:
        home = target / "broker-a" / node
        home.parent.mkdir(parents=True, exist_ok=True)
        settings = tmp_path / f"{node}.toml"
        shutil.copy(cluster.data(node) / "node.toml", settings)
        settings.write_text(f'data = "{home}"\n{settings.read_text()}')
        cluster.dledger("restore", str(snapshot), "--config", str(settings))
        again = cluster.dledger("restore", str(snapshot), "--config", str(settings), code=1)
        assert "holds data" in again.stderr
        shutil.copy(cluster.data(node) / "node.toml", home)
    restored = started(target)
    assert messages(restored) == expected


def test_nothing_is_restored_over_data_or_from_a_snapshot_that_is_damaged(
    cluster: RunningCluster, snapshot: Path, tmp_path: Path
) -> None:
    done = cluster.dledger("restore", str(snapshot), "--to", str(cluster.directory), code=1)
    assert "holds data" in done.stderr
    done = cluster.dledger("restore", str(cluster.data("n0")), "--to", str(tmp_path / "t"), code=2)
    assert "no snapshot" in done.stderr
    cluster.stop()

    damaged = tmp_path / "damaged"
    shutil.copytree(snapshot, damaged)
    segment = next((damaged / "broker-a/n1/commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(2000)
        byte = file.read(1)[0]
        file.seek(2000)
        file.write(bytes([byte ^ 1]))
    done = cluster.dledger("restore", str(damaged), "--to", str(tmp_path / "t"), code=1)
    assert "nothing is restored" in done.stderr
    assert str(segment) in done.stderr
    assert not list(tmp_path.glob("t*"))

    # The whole ones are enough.
    whole = (str(damaged / "broker-a/n0"), str(damaged / "broker-a/n2"))
    cluster.dledger("restore", *whole, "--to", str(tmp_path / "t"), *PORTS)


def test_a_restore_that_was_killed_is_repeated(
    cluster: RunningCluster, snapshot: Path, tmp_path: Path
) -> None:
    cluster.stop()
    target = tmp_path / "target"
    staging = tmp_path / "target.restoring"
    arguments = ("restore", str(snapshot), "--to", str(target), *PORTS)
    process = cluster.popen(*arguments)
    with while_needed(process):
        while not list(staging.glob("broker-a/n0/commitlog/*")):
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
        process.wait()
    assert staging.exists()
    assert not target.exists()
    (staging / "broker-a" / "n7").mkdir()

    cluster.dledger(*arguments)
    assert sorted(path.name for path in target.glob("*/*")) == ["n0", "n1", "n2"]
    assert [path.name for path in target.iterdir()] == ["broker-a"]
    assert not staging.exists()
    assert cluster.ask("verify", str(target))["consistent"] is True


def test_wrong_words_are_told(cluster: RunningCluster, snapshot: Path, tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        return cluster.dledger("restore", str(snapshot), *arguments, code=2).stderr

    to = ("--to", str(tmp_path / "t"))
    settings = tmp_path / "node.toml"
    shutil.copy(cluster.data("n0") / "node.toml", settings)
    text = f'data = "{tmp_path}/data-of-n0"\n{settings.read_text()}'
    assert "either --to DIR or --config FILE" in refused()
    assert "the file gives the number of nodes" in refused(
        "--config", str(settings), "--nodes", "3"
    )
    assert "no group b; it has broker-a" in refused(*to, "--rename", "b=c")
    assert "is not OLD=NEW" in refused(*to, "--rename", "broker-a")
    for old, new, why in (
        ('group = "broker-a"', 'group = "other"', "--rename OLD=other"),
        ("segment_size = 8388608", "segment_size = 16777216", "segment_size must be 8388608"),
        ("join = false", "join = true", "join = true"),
    ):
        assert old in text
        settings.write_text(text.replace(old, new))
        assert why in refused("--config", str(settings))
    assert not (tmp_path / "t").exists()
