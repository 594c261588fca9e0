"""Access control and TLS in a real cluster: switched on while it serves, and closed to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.cluster_admin.admin_client import RefusedError, run_admin
from broker.cluster_admin.cluster_view import view_groups
from broker.remoting.protocol.codes import RequestCode
from broker.security.credentials import read_profile
from tests.cluster.running_cluster import (
    RunningCluster,
    admin_profile,
    cluster,
    start_cluster,
)
from tests.cluster.test_peer_security import steady_producer

__all__ = ["cluster"]

ACCOUNTS_SECONDS = 30.0


def section(cluster: RunningCluster, mode: str) -> str:
    directory = json.dumps(str(cluster.directory / "security"))
    return (
        f'\n[security]\ndirectory = {directory}\npeers = "off"\ntls = "{mode}"\n'
        f'access_control = "{mode}"\n'
    )


def switch_node(cluster: RunningCluster, node: str, mode: str) -> None:
    """Restarts a node so. A leader gives way first, as operators would have it."""
    path = cluster.data(node) / "node.toml"
    text = path.read_text().partition("\n[security]")[0]
    if cluster.leader() == node:
        other = next(each for each in cluster.nodes if each != node)
        cluster.dledger("leader", "transfer", cluster.group, other)
    cluster.end(node)
    path.write_text(text + section(cluster, mode))
    cluster.start(node)
    cluster.wait_until_answering(node)
    cluster.wait_until_level()


def switch_name_server(cluster: RunningCluster, mode: str) -> None:
    home = cluster.directory / "namesrv"
    (home / "namesrv.toml").write_text(f'cluster = "DefaultCluster"\n{section(cluster, mode)}')
    cluster.restart_name_server()
    cluster.wait_until_level()


def accounts(cluster: RunningCluster) -> list[str]:
    (told,) = cluster.ask("security", "user", "list").values()
    return [each["access_key"] for each in told]


def test_it_is_switched_on_node_by_node_and_then_keeps_others_out(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = cluster.directory / "security"
    config = str(cluster.data("n0") / "node.toml")
    cluster.ask("security", "init", str(directory), config, "namesrv=127.0.0.1")
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster")

    # A producer that knows nothing of accounts goes on while the group becomes permissive.
    switch_name_server(cluster, "permissive")
    with steady_producer(cluster) as sent:
        for node in cluster.nodes:
            switch_node(cluster, node, "permissive")

    monkeypatch.setenv("DLEDGER_PROFILE", str(directory / "admin.toml"))
    ends_at = time.monotonic() + ACCOUNTS_SECONDS
    while not accounts(cluster):
        assert time.monotonic() < ends_at, "no leader has written the first account"
    admin = read_profile(str(directory / "admin.toml")).credentials
    assert admin is not None
    assert accounts(cluster) == [admin.access_key]
    profile = cluster.directory / "app.toml"
    cluster.dledger(
        *("security", "user", "add", "app-1234", "--topic", "orders=PUB|SUB"),
        *("--group", "look=SUB", "--out", str(profile)),
    )
    assert profile.stat().st_mode & 0o077 == 0

    # One that has an account goes on while it becomes enforcing.
    monkeypatch.setenv("DLEDGER_PROFILE", str(profile))
    with steady_producer(cluster) as signed:
        monkeypatch.setenv("DLEDGER_PROFILE", str(directory / "admin.toml"))
        for node in cluster.nodes:
            switch_node(cluster, node, "enforcing")
    switch_name_server(cluster, "enforcing")

    monkeypatch.setenv("DLEDGER_PROFILE", str(profile))
    looked = ("consume", "orders", "--group", "look", "--from", "earliest", "--json")
    found = cluster.ask(*looked, "--count", str(len(sent) + len(signed)), "--timeout", "60")
    assert [each["body"] for each in found].count("message 0") == 2
    assert {each["body"] for each in found} == {*sent, *signed}
    refused(cluster, profile, directory)

    # Keys that were replaced count no more, on every node.
    monkeypatch.setenv("DLEDGER_PROFILE", str(directory / "admin.toml"))
    cluster.dledger("security", "user", "set", "app-1234", "--new-key")
    done = cluster.dledger("produce", "orders", "--profile", str(profile), stdin="x\n", code=1)
    assert "AclException: the signature by 'app-1234' is wrong" in done.stderr
    app = read_profile(str(profile)).credentials
    assert app is not None
    no_key_is_readable(cluster, admin.secret_key, app.secret_key)
    cluster.stop()
    cluster.dledger("verify", *(str(cluster.data(node)) for node in cluster.nodes))


def refused(cluster: RunningCluster, profile: Path, directory: Path) -> None:
    """What others, and an account for other things, are told."""
    app = ("--profile", str(profile))
    done = cluster.dledger("produce", "bills", *app, stdin="x\n", code=1)
    assert "AclException: 'app-1234' has no permission PUB for the topic 'bills'" in done.stderr
    done = cluster.dledger("topic", "delete", "orders", *app, code=1)
    assert "is not an admin" in done.stderr
    done = cluster.dledger("security", "user", "list", *app, code=1)
    assert "is not an admin" in done.stderr
    stranger = cluster.directory / "stranger.toml"
    stranger.write_text(f'ca = "{directory / "ca.pem"}"\n')
    for command in (("produce", "orders"), ("topic", "create", "t", "-c", "DefaultCluster")):
        done = cluster.dledger(*command, "--profile", str(stranger), stdin="x\n", code=1)
        assert "AclException" in done.stderr
    write = {"namespace": "n", "key": "k", "value": "v"}
    with pytest.raises(RefusedError, match="AclException"):
        run_admin(
            cluster.namesrv, lambda namesrv: namesrv.tell_namesrvs(RequestCode.PUT_KV_CONFIG, write)
        )
    assert len(run_admin(cluster.namesrv, view_groups)) == 1


def no_key_is_readable(cluster: RunningCluster, *keys: str) -> None:
    for path in cluster.directory.rglob("*"):
        if path.is_file() and path.suffix != ".toml":
            data = path.read_bytes()
            assert not any(key.encode() in data for key in keys), path


def test_what_security_costs_is_measured_beside_the_same_without(tmp_path: Path) -> None:
    """On clusters of its own: the keys in the environment are those of another."""
    bench = [sys.executable, "-m", "broker", "bench", "produce", "--secured", "--json"]
    few = ("--batch", "16", "--seconds", "0.2", "--rounds", "2", "--dir", str(tmp_path))
    done = subprocess.run(
        [*bench, *few],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "DLEDGER_PROFILE": str(tmp_path / "another.toml")},
    )
    report = json.loads(done.stdout)
    (name,) = report["ratios"]
    for measured, secured in (("cluster", True), ("baseline", False)):
        assert report[measured]["secured"] is secured
        assert report[measured]["nodes"] == 3
        (workload,) = report[measured]["workloads"]
        assert workload["name"] == name
        assert workload["server_cpu_seconds_per_100k"] > 0
        assert workload["client_cpu_seconds_per_100k"] > 0
    assert list(tmp_path.iterdir()) == []


def test_only_a_cluster_of_its_own_is_measured_secured() -> None:
    bench = [sys.executable, "-m", "broker", "bench"]
    for words in (("failover",), ("produce", "--namesrv", "127.0.0.1:1")):
        done = subprocess.run(
            [*bench, *words, "--secured"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "--secured is for produce and consume" in done.stderr


def test_a_secured_cluster_starts_for_who_has_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that starts it reads the profile of the first admin beside the certificates."""
    monkeypatch.delenv("DLEDGER_PROFILE", raising=False)
    started = start_cluster(tmp_path / "data", True, nodes=1)
    try:
        started.dledger("group", "list", code=1)  # nobody else is let in
        monkeypatch.setenv("DLEDGER_PROFILE", str(admin_profile(tmp_path / "data")))
        started.dledger("group", "list")
    finally:
        started.stop()
