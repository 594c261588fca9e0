"""A restored cluster knows the accounts of the old one, if it has its secret."""

from __future__ import annotations

import json
from pathlib import Path

from broker.cli.local_cluster.local_cluster import open_cluster
from broker.cli.local_cluster.readiness import wait_until_serving
from tests.cluster.running_cluster import RunningCluster, secured_cluster
from tests.cluster.server_starter import start_server

__all__ = ["secured_cluster"]


def test_accounts_and_their_keys_are_restored(
    secured_cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster = secured_cluster
    allowed = ("--topic", "orders=SUB", "--group", "readers=SUB")
    made = cluster.ask("security", "user", "add", "reader-app", *allowed)
    cluster.dledger("produce", "orders", stdin="one\n")
    cluster.wait_until_level()
    expected = cluster.ask("security", "user", "list")
    cluster.dledger("snapshot", "--out", str(tmp_path / "snap"))
    cluster.stop()

    target = tmp_path / "restored"
    ports = ("--namesrv-port", "0", "--port", "0", "--http-port", "0")
    cluster.dledger("restore", str(tmp_path / "snap"), "--to", str(target), *ports)
    files = json.dumps(str(cluster.directory / "security"))
    section = f'\n[security]\ndirectory = {files}\npeers = "off"\n'
    for path in target.glob("*/*/node.toml"):
        path.write_text(path.read_text() + section)
    (target / "namesrv").mkdir()
    (target / "namesrv" / "namesrv.toml").write_text(section)
    local = open_cluster(target)
    try:
        local.start(start_server)
        wait_until_serving(local)
        restored = RunningCluster(local)
        assert restored.ask("security", "user", "list") == expected
        profile = tmp_path / "reader.toml"
        profile.write_text(
            f'access_key = "{made["access_key"]}"\nsecret_key = "{made["secret_key"]}"\n'
            f'ca = "{cluster.directory}/security/ca.pem"\n'
        )
        first = ("--group", "readers", "--from", "earliest", "--count", "1")
        told = restored.ask("consume", "orders", *first, "--profile", str(profile))
        assert told["body"] == "one"
    finally:
        local.stop()
