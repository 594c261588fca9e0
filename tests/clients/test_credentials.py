"""Clients written by others, unchanged, sign for real: right keys are let in, others are not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from broker.security.credentials import Credentials, read_profile
from tests.clients.test_real_clients import cpp_command, lines_of, needs_linux_wheel, node_command
from tests.clients.test_rocketmq_5 import command, endpoints
from tests.cluster.running_cluster import RunningCluster, secured_cluster

__all__ = ["secured_cluster"]

COUNT = 20
SECONDS = 30


def account(cluster: RunningCluster, topic: str, group: str) -> Credentials:
    """A new account that may use the topic as the group; the topic is there."""
    cluster.dledger("topic", "create", topic)
    profile = cluster.directory / f"{topic}.toml"
    cluster.dledger(
        *("security", "user", "add", f"{topic}-user", "--topic", f"{topic}=PUB|SUB"),
        *("--group", f"{group}=SUB", "--out", str(profile)),
    )
    found = read_profile(str(profile)).credentials
    assert found is not None
    return found


def keys(credentials: Credentials) -> dict[str, str]:
    return {"ACCESS_KEY": credentials.access_key, "SECRET_KEY": credentials.secret_key}


def run(program: list[str], home: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", **env},
    )


def wrong(credentials: Credentials) -> dict[str, str]:
    return keys(Credentials(credentials.access_key, "some-other-secret"))


def stored(cluster: RunningCluster, topic: str) -> int:
    queues = cluster.ask("topic", "describe", topic)["queues"]
    return sum(queue["max_offset"] for queue in queues)


@needs_linux_wheel
def test_the_cpp_client_signs(secured_cluster: RunningCluster, tmp_path: Path) -> None:
    cluster, user = secured_cluster, account(secured_cluster, "cpp", "cpp_readers")
    produce = cpp_command("produce", cluster.namesrv, "cpp", COUNT)
    for env in (wrong(user), {}):
        refused = run(produce, tmp_path, env | {"TRIES": "2"})
        assert refused.returncode != 0
        assert "not acknowledged" in refused.stderr
    assert stored(cluster, "cpp") == 0
    assert len(lines_of(produce, tmp_path, **keys(user))) == COUNT
    consume = cpp_command("consume", cluster.namesrv, "cpp", "cpp_readers", COUNT)
    assert {line["n"] for line in lines_of(consume, tmp_path, **keys(user))} == {*range(COUNT)}


@pytest.mark.node
def test_ali_ons_signs(secured_cluster: RunningCluster, tmp_path: Path) -> None:
    cluster, user = secured_cluster, account(secured_cluster, "node", "node_readers")
    short = node_command("produce", cluster.namesrv, "node", COUNT, 5)
    for env in (wrong(user), {}):
        assert run(short, tmp_path, env).returncode == 3  # not done in that time
    assert stored(cluster, "node") == 0
    produce = node_command("produce", cluster.namesrv, "node", COUNT, SECONDS)
    assert len(lines_of(produce, tmp_path, **keys(user))) == COUNT
    consume = node_command("consume", cluster.namesrv, "node", "node_readers", COUNT, SECONDS)
    assert {line["n"] for line in lines_of(consume, tmp_path, **keys(user))} == {*range(COUNT)}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_client_of_rocketmq_5_signs(
    secured_cluster: RunningCluster, tmp_path: Path, *, tls: bool
) -> None:
    """The port is permissive: it takes this client with TLS, and without. With TLS it must have one
    address: it looks for the text of all that it has in the certificate."""
    topic = f"five-{tls:d}"
    cluster, user = secured_cluster, account(secured_cluster, topic, f"{topic}_readers")
    ca = str(cluster.directory / "security" / "ca.pem")
    trusts = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": ca} if tls else {}
    at = endpoints(cluster).partition(";")[0] if tls else endpoints(cluster)
    produce = command("produce", "normal", at, topic, COUNT)
    for env in (wrong(user), {}):
        refused = run(produce, tmp_path, env | trusts | {"TRIES": "2"})
        assert refused.returncode != 0
    assert stored(cluster, topic) == 0
    assert len(lines_of(produce, tmp_path, **keys(user), **trusts)) == COUNT
    consume = command("simple", at, topic, f"{topic}_readers", COUNT)
    ready, *heard = lines_of(consume, tmp_path, **keys(user), **trusts)
    assert ready == {"ready": True}
    assert {line["n"] for line in heard if line["acked"]} == {*range(COUNT)}


def test_our_client_signs_and_is_told_at_once_what_it_may_not(
    secured_cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster, user = secured_cluster, account(secured_cluster, "ours", "readers")
    profile = tmp_path / "wrong.toml"
    profile.write_text(f'access_key = "{user.access_key}"\nsecret_key = "some-other-secret"\n')
    lines = "".join(f"{n}\n" for n in range(COUNT))
    done = cluster.dledger("produce", "ours", "--profile", str(profile), stdin=lines, code=1)
    assert "AclException: the signature by 'ours-user' is wrong" in done.stderr
    assert "some-other-secret" not in done.stderr
    own = ("--profile", str(cluster.directory / "ours.toml"))
    cluster.dledger("produce", "ours", *own, stdin=lines)
    found = cluster.ask(
        *("consume", "ours", "--group", "readers", "--from", "earliest", *own),
        *("--count", str(COUNT), "--timeout", "30"),
    )
    assert len(found) == COUNT
    others = ("consume", "ours", "--group", "others", *own, "--timeout", "5")
    done = cluster.dledger(*others, code=1)
    assert "has no permission SUB for the group 'others'" in done.stderr
    assert json.dumps(cluster.ask("security", "user", "list")).count(user.secret_key) == 0
