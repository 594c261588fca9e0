"""Peers over TLS in a real cluster: switched on while it serves, renewed, and closed to others."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, cluster, while_needed

__all__ = ["cluster"]

SEND_SECONDS = 0.02
FEW = 20


def set_peers(cluster: RunningCluster, node: str, mode: str) -> None:
    """Restarts a node with ``peers`` so. A leader gives way first, as operators would have it."""
    path = cluster.data(node) / "node.toml"
    text = path.read_text().partition("\n[security]")[0]
    directory = json.dumps(str(cluster.directory / "security"))
    section = f'directory = {directory}\npeers = "{mode}"\ntls = "disabled"\naccess_control = "off"'
    if cluster.leader() == node:
        other = next(each for each in cluster.nodes if each != node)
        cluster.dledger("leader", "transfer", cluster.group, other)
    cluster.end(node)
    path.write_text(f"{text}\n[security]\n{section}\n")
    cluster.start(node)
    cluster.wait_until_answering(node)
    cluster.wait_until_level()


@contextmanager
def steady_producer(cluster: RunningCluster) -> Iterator[list[str]]:
    """Sends while the block runs; gives the bodies. Each must have been acknowledged."""
    sent: list[str] = []
    stopped = threading.Event()
    command = [sys.executable, "-m", "broker", "produce", "orders", "--json"]
    env = cluster.environment
    with while_needed(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    ) as process:
        assert process.stdin is not None

        def send() -> None:
            while not stopped.is_set():
                sent.append(f"message {len(sent)}")
                process.stdin.write(f"{sent[-1]}\n")  # type: ignore[union-attr]  # it is a pipe
                process.stdin.flush()  # type: ignore[union-attr]  # it is a pipe
                time.sleep(SEND_SECONDS)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield sent
        finally:
            stopped.set()
            thread.join()
            process.stdin.close()
            process.stdin = None
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert len(out.splitlines()) == len(sent)


def modes(cluster: RunningCluster) -> set[str]:
    nodes = cluster.ask("security", "status")["nodes"]
    return {node["peers"] for node in nodes}


def test_it_is_switched_on_node_by_node_and_no_send_is_refused(cluster: RunningCluster) -> None:
    directory = cluster.directory / "security"
    config = str(cluster.data("n0") / "node.toml")
    made = cluster.ask("security", "init", str(directory), config)
    assert "broker-a-n2.pem" in made["written"]
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster")

    with steady_producer(cluster) as sent:
        for mode in ("permissive", "enforcing"):
            for node in cluster.nodes:
                set_peers(cluster, node, mode)
            assert modes(cluster) == {mode}
        # A new certificate is taken by the next connection, and no process is restarted for it.
        cluster.dledger("security", "init", str(directory), config, "--renew")
        pids = {node.node: node.pid for node in cluster.view().nodes}
        follower = next(node for node in cluster.nodes if node != cluster.leader())
        cluster.kill(follower)
        cluster.start(follower)
        cluster.wait_until_answering(follower)
        cluster.wait_until_level()
        now = {node.node: node.pid for node in cluster.view().nodes}
        assert {node for node in pids if pids[node] != now[node]} == {f"broker-a/{follower}"}
        before = len(sent)
        while len(sent) < before + FEW:
            time.sleep(SEND_SECONDS)

    looked = ("consume", "orders", "--group", "look", "--from", "earliest", "--json")
    found = cluster.ask(*looked, "--count", str(len(sent)), "--timeout", "30")
    assert {each["body"] for each in found} == {*sent}
    tell_no_secret(cluster, directory)


def tell_no_secret(cluster: RunningCluster, directory: Path) -> None:
    secrets = [
        line
        for path in directory.iterdir()
        if path.name.endswith("-key.pem") or path.name == "cluster-secret"
        for line in path.read_text().splitlines()
        if not line.startswith("-----")
    ]
    assert len(secrets) > 10
    told = [
        cluster.dledger("status", "--json").stdout,
        cluster.dledger("security", "status", str(directory), "--json").stdout,
        *(path.read_text() for path in cluster.directory.glob("*/*/log/*.log")),
        *(Path(f"/proc/{node.pid}/cmdline").read_text() for node in cluster.view().nodes),
    ]
    assert not [secret for secret in secrets for text in told if secret in text]


def test_a_node_with_a_certificate_of_another_cluster_stays_outside(
    cluster: RunningCluster,
) -> None:
    ours, theirs = cluster.directory / "security", cluster.directory / "theirs"
    config = str(cluster.data("n0") / "node.toml")
    cluster.dledger("security", "init", str(ours), config)
    cluster.dledger("security", "init", str(theirs), config)
    for node in cluster.nodes:
        set_peers(cluster, node, "permissive")
    for node in cluster.nodes:
        set_peers(cluster, node, "enforcing")
    stranger = next(node for node in cluster.nodes if node != cluster.leader())
    cluster.end(stranger)
    path = cluster.data(stranger) / "node.toml"
    path.write_text(path.read_text().replace(str(ours), str(theirs)))
    cluster.start(stranger)
    cluster.wait_until_answering(stranger)
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster")
    cluster.dledger("produce", "orders", stdin="one\ntwo\n")
    [outside] = [each for each in cluster.view().nodes if each.node == f"broker-a/{stranger}"]
    [leader] = [each for each in cluster.view().nodes if each.role == "leader"]
    assert outside.commit_index is not None
    assert leader.commit_index is not None
    assert outside.commit_index < leader.commit_index
    log = (cluster.data(stranger) / "log/node.log").read_text()
    assert "the certificate is not trusted" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("command", ["node", "namesrv"])
def test_a_server_that_others_reach_starts_only_if_it_is_told_to_be_insecure(
    command: str, tmp_path: Path
) -> None:
    text = 'host = "0.0.0.0"\nport = 0\n'
    if command == "node":
        text = (
            'group = "broker-a"\nnode = "n0"\nnamesrv = ["127.0.0.1:1"]\n[members.n0]\n'
            'peer = "0.0.0.0:1"\naddress = "127.0.0.1:2"\nhttp = "127.0.0.1:3"\n'
        )
    path = tmp_path / "server.toml"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "broker", command, "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "dledger security init" in done.stderr
    assert "insecure = true" in done.stderr


def test_an_insecure_server_says_so_in_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "broker", "namesrv", "--host", "0.0.0.0", "--port", "0"]  # noqa: S104 - refused
    with while_needed(
        subprocess.Popen(
            [*command, "--insecure"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("the NameServer listens on ")
        assert "INSECURE: other machines reach this server" in process.stderr.readline()


def test_up_listens_for_this_machine_alone(cluster: RunningCluster) -> None:
    pids = {node.pid for node in cluster.view().nodes}
    listening = [
        line.split()
        for pid in pids
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    owned = {
        link.readlink().name.removeprefix("socket:[").removesuffix("]")
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if link.is_symlink() and link.readlink().name.startswith("socket:[")
    }
    hosts = {line[1].partition(":")[0] for line in listening if line[9] in owned}
    assert hosts == {"0100007F"}
