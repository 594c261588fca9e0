"""``dledger backup`` of a cluster at work, into a server that speaks S3, and back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.cli.command_line import run_command
from broker.cli.local_cluster.local_cluster import open_cluster
from broker.cli.local_cluster.readiness import wait_until_serving
from tests.cluster.running_cluster import SEGMENT_SIZE, RunningCluster, while_needed
from tests.cluster.server_starter import start_server
from tests.support.free_ports import free_member

MOTO = Path(__file__).parents[2] / "build/clients/moto/bin/moto_server"
START_SECONDS = 60.0
LINE = b64encode(Random(1).randbytes(75_000)).decode()
"""It stays large: a client compresses what shrinks, in so far as it has the time."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket. The environment says where its server is, and who may."""
    if not MOTO.exists():
        pytest.fail("the S3 server is not set up: run `make clients`")
    host, port = free_member().http
    command = [str(MOTO), "-H", host, "-p", str(port)]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    with while_needed(server) as process:
        ends_at = time.monotonic() + START_SECONDS
        while True:
            assert process.poll() is None
            assert time.monotonic() < ends_at
            with socket.socket() as probe:
                if probe.connect_ex((host, port)) == 0:
                    break
            time.sleep(0.1)
        request = urllib.request.Request(f"http://{host}:{port}/backups", method="PUT")
        with urllib.request.urlopen(request):
            pass
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield "s3://backups/dledger"


@pytest.fixture
def run(cluster: RunningCluster, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process; returns its document, or what it said."""

    def run(*arguments: str, code: int = 0) -> Any:
        found = run_command([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert found == code, err
        return json.loads(out) if code == 0 else err

    return run


def test_backups_of_a_cluster_at_work_are_incremental_and_come_back(
    cluster: RunningCluster, s3: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    cluster.dledger("topic", "create", "orders", "--queues", "2")
    cluster.dledger("produce", "orders", "--batch", "10", stdin=f"{LINE}\n" * 200)
    cluster.wait_until_level()
    first = run("backup", "create", s3)
    [replica] = first["replicas"]
    assert f"broker-a/{replica['node']}" != f"broker-a/{cluster.leader()}"
    assert first["sent_bytes"] == first["bytes"] > SEGMENT_SIZE
    for node in cluster.nodes:
        snapshots = cluster.data(node) / "snapshots"
        assert not snapshots.exists() or not any(snapshots.iterdir())

    cluster.dledger("produce", "orders", stdin="".join(f"line {number}\n" for number in range(50)))
    cluster.wait_until_level()
    second = run("backup", "create", s3)
    assert second["bytes"] > first["bytes"]
    assert second["sent_bytes"] < second["bytes"] - SEGMENT_SIZE
    names = [each["backup"] for each in run("backup", "list", s3)["backups"]]
    assert names == [first["backup"], second["backup"]]
    expected = messages(cluster)
    cluster.stop()

    for backup, count in ((first["backup"], 200), (second["backup"], 250)):
        target = tmp_path / backup
        ports = ("--namesrv-port", "0", "--port", "0", "--http-port", "0")
        run("restore", s3, "--backup", backup, "--to", str(target), "--nodes", "1", *ports)
        local = open_cluster(target)
        local.start(start_server)
        try:
            wait_until_serving(local)
            found = messages(RunningCluster(local))
        finally:
            local.stop()
        assert len(found) == count
        assert found == [each for each in expected if each in found]
    assert found == expected

    run("backup", "prune", s3, "--keep", "1")
    assert [each["backup"] for each in run("backup", "list", s3)["backups"]] == names[1:]
    done = run("restore", s3, "--to", str(tmp_path / "again"), "--nodes", "3", *ports)
    assert len(done["replicas"]) == 3


def messages(cluster: RunningCluster) -> list[tuple[int, int, str]]:
    """Queue, offset and beginning of all messages, in order."""
    found = cluster.ask("consume", "orders", "--offset", "0")
    return sorted((each["queue_id"], each["queue_offset"], each["body"][:20]) for each in found)


def test_groups_that_do_not_run_are_told(
    cluster: RunningCluster, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    url = f"file://{tmp_path}/store"
    assert "there is no group b; known are: broker-a" in run(
        "backup", "create", url, "--group", "b", code=2
    )
    for node in cluster.nodes:
        cluster.kill(node)
    told = run("backup", "create", url, code=1)
    assert "no node of broker-a is registered any more" in told
    assert not os.path.exists(tmp_path / "store")
