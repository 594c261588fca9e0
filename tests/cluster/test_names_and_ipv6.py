"""Nodes and a NameServer on IPv6 and under names: real processes, sockets, certificates."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.command_line import run_command
from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster, open_cluster
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from tests.cluster.running_cluster import RunningCluster, admin_profile
from tests.cluster.server_starter import start_server

LOOPBACK_V6 = "0" * 31 + "1"
INTERFACES = Path("/proc/net/if_inet6")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not INTERFACES.exists() or LOOPBACK_V6 not in INTERFACES.read_text(),
        reason="this machine has no IPv6",
    ),
]

LOOPBACK = "127.0.0.1"


def written(directory: Path, hosts: dict[str, str]) -> dict[str, Path]:
    """The files of a new cluster whose nodes are dialled at these hosts."""
    design_cluster(directory, ports=Ports(0, 0, 0)).write()
    files = {path.parent.name: path for path in directory.glob("*/*/node.toml")}
    for path in files.values():
        top, *tables = path.read_text().split("\n[members.")
        top = top.replace(LOOPBACK, "[::1]").replace(
            "segment_size = 268435456", "segment_size = 8388608"
        )
        tables = [each.replace(LOOPBACK, hosts[each[:2]]) for each in tables]
        path.write_text("\n[members.".join([top, *tables]))
    return files


def running(directory: Path) -> Iterator[RunningCluster]:
    local: LocalCluster = open_cluster(directory)
    try:
        local.start(start_server)
        wait_until_serving(local)
        yield RunningCluster(local)
    finally:
        local.stop()


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[RunningCluster]:
    """One node on IPv6, one on IPv4, and one under a name, which listens at all addresses."""
    files = written(tmp_path, {"n0": "[::1]", "n1": "localhost", "n2": LOOPBACK})
    text = files["n1"].read_text()
    own = text.partition("[members.n1]")[2].partition("[members.")[0]
    listen = own.replace("localhost", "[::]")
    files["n1"].write_text(
        text.replace("insecure = false", "insecure = true") + f"\n[listen]{listen}"
    )
    yield from running(tmp_path)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    """All on IPv6, with mutual TLS between the nodes, and TLS alone for clients."""
    files = written(tmp_path, dict.fromkeys(("n0", "n1", "n2"), "[::1]"))
    made = tmp_path / "security"
    assert run_command(["security", "init", str(made), str(files["n0"]), "namesrv=::1"]) == 0
    section = f'\n[security]\ndirectory = {json.dumps(str(made))}\ntls = "enforcing"\n'
    for path in (*files.values(), tmp_path / "namesrv" / "namesrv.toml"):
        path.parent.mkdir(exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + section)
    monkeypatch.setenv("DLEDGER_PROFILE", str(admin_profile(tmp_path)))
    yield from running(tmp_path)


def sent_and_received(cluster: RunningCluster, topic: str) -> list[dict[str, str]]:
    cluster.dledger("topic", "create", topic, "-c", "DefaultCluster")
    cluster.dledger("produce", topic, stdin="one\ntwo\n")
    read = ("consume", topic, "--group", f"g-{topic}", "--from", "earliest", "--count", "2")
    messages: list[dict[str, str]] = cluster.ask(*read)
    assert {each["body"] for each in messages} == {"one", "two"}
    return messages


def test_ipv4_ipv6_and_names_serve_in_one_group(mixed: RunningCluster) -> None:
    assert mixed.namesrv.startswith("[::1]:")
    addresses = {node: str(mixed.config(node).own.address) for node in mixed.nodes}
    assert {each.rpartition(":")[0] for each in addresses.values()} == {
        "[::1]",
        "localhost",
        LOOPBACK,
    }
    for leader in ("n0", "n1", "n2"):
        if mixed.leader() != leader:
            mixed.dledger("leader", "transfer", mixed.group, leader)
        assert mixed.leader() == leader
        messages = sent_and_received(mixed, f"topic-{leader}")
        found = mixed.ask("message", "get", messages[0]["msg_id"])
        assert found["body"] == messages[0]["body"]
        stored_by = ipaddress.IPv4Address(int(messages[0]["msg_id"][:8], 16))
        assert str(stored_by) == LOOPBACK if leader == "n2" else stored_by.is_reserved
    mixed.kill("n2")
    mixed.start("n2")
    mixed.wait_until_level()
    shown = {node.node: node.http for node in mixed.view().nodes}
    for address in shown.values():
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as answer:
            assert answer.status == 200
    port = mixed.config("n1").own.address.port
    for host in ("::1", LOOPBACK):
        socket.create_connection((host, port), timeout=5).close()


def test_a_cluster_on_ipv6_alone_is_secured_and_survives_its_leader(
    secured: RunningCluster,
) -> None:
    sent_and_received(secured, "before")
    leader = secured.leader()
    secured.kill(leader)
    sent_and_received(secured, "after")
    secured.start(leader)
    secured.wait_until_level()
    status = secured.ask("status")
    assert all(
        node["address"].startswith("[::1]:") for each in status["groups"] for node in each["nodes"]
    )
    http = secured.config(leader).own.http
    trusted = ssl.create_default_context(cafile=str(secured.directory / "security" / "ca.pem"))
    with (
        socket.create_connection(http, timeout=5) as plain,
        trusted.wrap_socket(plain, server_hostname="::1") as connection,
    ):
        certificate = connection.getpeercert()
        assert certificate is not None
        assert ("IP Address", "0:0:0:0:0:0:0:1") in certificate["subjectAltName"]
