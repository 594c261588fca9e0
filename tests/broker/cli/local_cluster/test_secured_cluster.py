"""The cluster on which `dledger bench --secured` measures."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from broker.certificates.security_directory import look_at
from broker.cli.local_cluster.local_cluster import NAMESRV, design_cluster, open_cluster
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.secured_cluster import secure
from broker.config.config_file import read_name_server_config
from broker.config.security_config import ENFORCING


def test_all_its_servers_have_certificates_and_let_nobody_else_in(tmp_path: Path) -> None:
    secure(design_cluster(tmp_path, ports=Ports(0, 0, 0))).write()

    cluster = open_cluster(tmp_path)
    settings = str(tmp_path / NAMESRV / f"{NAMESRV}.toml")
    found = [node.config.security for node in cluster.nodes.values()]
    found.append(read_name_server_config(settings).security)
    assert len(found) == 4
    for security in found:
        assert (security.peers, security.tls, security.access_control) == (ENFORCING,) * 3
        assert security.files == found[0].files
    reports, problems = look_at(found[0].files, datetime.now(UTC))
    assert not problems
    assert not any(each.problems for each in reports)
    certified = {"broker-a-n0.pem", "broker-a-n1.pem", "broker-a-n2.pem", "namesrv.pem"}
    assert {each.file for each in reports} == {"ca.pem", *certified}
