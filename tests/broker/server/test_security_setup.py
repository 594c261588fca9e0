"""What keeps a server from starting with less security than its files ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.certificates.security_directory import init_directory
from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.config.security_config import ENFORCING, SecurityConfig, SecurityFiles
from broker.config.setting_checks import ConfigError
from broker.server.security_setup import read_peer_security
from dledger.wire.endpoint import Endpoint
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.revoked_certificates import FILE_BYTES_MAX


def config(directory: Path) -> NodeConfig:
    node = PeerIdentity("DefaultCluster", "broker-a", "n0")
    init_directory(SecurityFiles(str(directory)), node.cluster, {node: []}, days=9, renew=False)
    return NodeConfig(
        cluster=node.cluster,
        group=node.group,
        node=node.node,
        data=str(directory / "data"),
        members={"n0": Member(*(Endpoint("127.0.0.1", port) for port in (40911, 10911, 8080)))},
        namesrv=("127.0.0.1:9876",),
        security=SecurityConfig(directory=str(directory), peers=ENFORCING),
    )


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_text("0A\nnonsense\n"), "line 2 is no serial number"),
        (lambda path: path.write_bytes(b"\xff"), "utf-8"),
        (lambda path: path.write_bytes(b"#" * (FILE_BYTES_MAX + 1)), "it is longer than"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_a_node_does_not_start_with_a_list_of_revoked_certificates_that_it_cannot_use(
    tmp_path: Path, spoil: Callable[[Path], object], why: str
) -> None:
    """It would believe those that it refused before its restart."""
    of = config(tmp_path)
    revoked = Path(of.security.files.revoked)
    assert read_peer_security(of) is not None  # there need be no such file
    revoked.write_text("0A\n")
    assert read_peer_security(of) is not None
    revoked.unlink()
    spoil(revoked)
    with pytest.raises(ConfigError, match=why) as caught:
        read_peer_security(of)
    assert str(revoked) in str(caught.value)
