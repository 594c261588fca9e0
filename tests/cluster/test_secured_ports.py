"""The ports of a cluster with access control and TLS, as operators and browsers use them."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broker.security.credentials import ClientSecurity, read_profile
from tests.cluster.running_cluster import RunningCluster, admin_profile, secured_cluster

__all__ = ["secured_cluster"]


@pytest.fixture
def admin(secured_cluster: RunningCluster) -> ClientSecurity:
    return read_profile(str(admin_profile(secured_cluster.directory)))


def get(url: str, headers: dict[str, str], tls: ssl.SSLContext | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_http_speaks_tls_and_knows_keys_and_tokens(
    secured_cluster: RunningCluster, admin: ClientSecurity
) -> None:
    http, tls = secured_cluster.config(secured_cluster.leader()).own.http, admin.tls()
    assert admin.credentials is not None
    basic = admin.credentials.http_header()
    token = secured_cluster.dledger("security", "token").stdout.strip()
    bearer = {"Authorization": f"Bearer {token}"}
    assert get(f"https://{http}/healthz", {}, tls)[0] == 200
    assert get(f"https://{http}/status", {}, tls)[0] == 401
    for headers in (basic, bearer):
        assert get(f"https://{http}/status", headers, tls)[0] == 200
        assert get(f"http://{http}/status", headers)[0] == 200
    changed = {"Authorization": f"Bearer {token[:-2]}AA"}
    assert get(f"https://{http}/status", changed, tls)[0] == 401


def test_a_node_asks_the_others_as_who_asked_it(
    secured_cluster: RunningCluster, admin: ClientSecurity
) -> None:
    """The console of one node shows all, to who may see them."""
    http = secured_cluster.config("n0").own.http
    assert admin.credentials is not None
    status, document = get(f"https://{http}/nodes", admin.credentials.http_header(), admin.tls())
    assert status == 200
    assert [node["node"] for node in document["nodes"]] == ["n0", "n1", "n2"]
    assert "down" not in {node["role"] for node in document["nodes"]}


def test_a_snapshot_is_an_admins(secured_cluster: RunningCluster, tmp_path: Path) -> None:
    cluster = secured_cluster
    app = cluster.directory / "snap-user.toml"
    cluster.dledger("security", "user", "add", "snap-user", "--out", str(app))
    refused = cluster.dledger(
        *("snapshot", "--out", str(tmp_path / "a"), "--profile", str(app)), code=1
    )
    assert "not an admin" in refused.stderr + refused.stdout
    cluster.dledger("snapshot", "--out", str(tmp_path / "b"))
    cluster.dledger("verify", str(tmp_path / "b"))


def test_the_commands_of_a_local_cluster_work(secured_cluster: RunningCluster) -> None:
    cluster = secured_cluster
    assert cluster.ask("health")["groups"]
    follower = next(node for node in cluster.nodes if node != cluster.leader())
    cluster.kill(follower)
    cluster.start(follower)
    cluster.wait_until_answering(follower)
    cluster.dledger("leader", "transfer", cluster.group, follower)
    assert cluster.leader() == follower
    cluster.dledger("topic", "create", "later")
    cluster.dledger("topic", "delete", "later")
