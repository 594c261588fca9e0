"""Two broker groups behind two NameServers, of which one each dies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster, open_cluster
from broker.cli.local_cluster.managed_processes import end_processes
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import view_groups
from broker.remoting.protocol.codes import RequestCode
from tests.clients.test_real_clients import lines_of, node_command
from tests.cluster.forked_commands import command_starter
from tests.cluster.running_cluster import SEGMENT_SIZE
from tests.cluster.server_starter import start_server
from tests.support.free_ports import free_member

COUNT = 200
ENOUGH_SECONDS = 60.0


class TwoGroups:
    """broker-a and broker-b of one node each, and a second NameServer beside that of the cluster.

    A group of one makes dying sure: nobody takes over.
    """

    def __init__(self, local: LocalCluster, second: str) -> None:
        self.local = local
        self.second = second
        self.namesrv = f"{local.namesrv};{second}"

    def produce(self, count: int) -> list[dict[str, object]]:
        """What ``dledger produce`` says of lines that nobody else sends."""
        lines = self.dledger("produce", "lines", "--batch", "5", "--json", stdin="x\n" * count)
        return [json.loads(line) for line in lines.splitlines()]

    def dledger(self, *arguments: str, stdin: str = "") -> str:
        """What a command prints that knows both NameServers."""
        environment = {"NAMESRV_ADDR": self.namesrv}
        done = command_starter().run(arguments, environment, stdin.encode(), ENOUGH_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def kill(self, group: str) -> None:
        assert end_processes([self.local.node(f"{group}/n0").process], kill=True)

    def start(self, group: str) -> None:
        self.local.node(f"{group}/n0").process.start(start_server)
        wait_until_serving(self.local)


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[TwoGroups]:
    design_cluster(tmp_path, nodes=1, groups=2, ports=Ports(0, 0, 0)).write()
    second = free_member().peer
    for path in tmp_path.glob("*/*/node.toml"):
        text = re.sub(
            r"^namesrv = \[(.*)\]$", rf'namesrv = [\1, "{second}"]', path.read_text(), flags=re.M
        )
        path.write_text(
            re.sub(r"^segment_size = .*$", f"segment_size = {SEGMENT_SIZE}", text, flags=re.M)
        )
    local = open_cluster(tmp_path)
    other = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "broker",
            "namesrv",
            "--host",
            second.host,
            "--port",
            str(second.port),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        with closing(other.stdout):
            other.stdout.readline()
            local.start(start_server)
            wait_until_serving(local)
            yield TwoGroups(local, str(second))
    finally:
        local.stop()
        other.kill()
        other.wait()


def test_a_dead_name_server_and_a_dead_group_do_not_stop_the_rest(
    groups: TwoGroups, tmp_path: Path
) -> None:
    for topic in ("orders", "lines"):
        groups.dledger("topic", "create", topic, "--queues", "4", "-c", "DefaultCluster")
    first = lines_of(node_command("produce", groups.namesrv, "orders", COUNT), tmp_path)
    assert {each.group for each in run_admin(groups.second, view_groups)} == {
        "broker-a",
        "broker-b",
    }
    assert {line["broker"] for line in groups.produce(100)} == {"broker-a", "broker-b"}

    assert end_processes([groups.local.namesrv_process], kill=True)
    groups.kill("broker-b")
    assert {line["broker"] for line in groups.produce(100)} == {"broker-a"}
    dead = next(g for g in run_admin(groups.second, view_groups) if g.group == "broker-b")
    assert dead.unregistered_seconds is not None
    assert [(node.node, node.role) for node in dead.nodes] == [("broker-b/n0", "down")]
    second = lines_of(node_command("produce", groups.namesrv, "orders", COUNT), tmp_path)

    groups.local.namesrv_process.start(start_server)
    groups.start("broker-b")
    consumed = lines_of(node_command("consume", groups.namesrv, "orders", "G", COUNT), tmp_path)

    stored = {line["msg_id"] for line in first + second}
    assert len(stored) == 2 * COUNT
    assert {line["n"] for line in consumed} == set(range(COUNT))
    assert {line["broker"] for line in groups.produce(100)} == {"broker-a", "broker-b"}


def test_a_group_is_shown_with_all_that_it_has_to_consume_on_every_group_of_brokers(
    groups: TwoGroups,
) -> None:
    groups.dledger("topic", "create", "lines", "--queues", "2", "-c", "DefaultCluster")
    assert {line["broker"] for line in groups.produce(100)} == {"broker-a", "broker-b"}
    place = {"consumerGroup": "readers", "topic": "lines", "queueId": 0, "commitOffset": 1}
    address = str(groups.local.node("broker-a/n0").config.own.address)
    run_admin(
        groups.namesrv, lambda admin: admin.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, place)
    )

    described = json.loads(groups.dledger("group", "describe", "readers", "--json"))
    shown = []
    for node in ("broker-a/n0", "broker-b/n0"):
        http = groups.local.node(node).config.own.http
        with urllib.request.urlopen(f"http://{http}/cluster", timeout=10) as answer:
            shown.append(json.load(answer))

    assert described["lag"] == 99
    assert {queue["broker"] for queue in described["queues"]} == {"broker-a", "broker-b"}
    for document in shown:
        assert [each["healthy"] for each in document["broker_groups"]] == [True, True]
        assert [node["group"] for node in document["nodes"]] == ["broker-a", "broker-b"]
        assert {row["broker_group"] for row in document["groups"]} == {"broker-a", "broker-b"}
        assert sum(row["lag"] for row in document["groups"]) == 99

    deleted = json.loads(groups.dledger("group", "delete", "readers", "--json"))
    assert deleted["brokers"] == [address]
    assert json.loads(groups.dledger("group", "list", "--json")) == {"groups": []}
