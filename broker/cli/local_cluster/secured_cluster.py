"""A new cluster on this machine with TLS and access control on all ports."""

from __future__ import annotations

from dataclasses import replace

from broker.cli.local_cluster.local_cluster import NAMESRV, LocalCluster
from broker.cli.local_cluster.port_layout import HOST
from broker.config.security_config import ENFORCING, SECURITY_SETTINGS, SecurityConfig
from broker.config.toml_text import toml_value
from dledger.wire.peer_identity import PeerIdentity

CERTIFICATE_DAYS = 60
"""Long enough for certificates not to be reported as about to expire."""


def secure(cluster: LocalCluster) -> LocalCluster:
    """The cluster with all checks enforced. This writes its certificates and the settings of its
    NameServer, but not yet those of its nodes."""
    from broker.certificates.security_directory import init_directory  # noqa: PLC0415 - it takes a while

    configs = [node.config for node in cluster.nodes.values()]
    security = SecurityConfig(
        directory=str(cluster.directory.absolute() / "security"),
        peers=ENFORCING,
        tls=ENFORCING,
        access_control=ENFORCING,
    )
    named = [PeerIdentity(each.cluster, each.group, each.node) for each in configs]
    named.append(PeerIdentity(configs[0].cluster, "", NAMESRV))
    hosts = {each: [HOST] for each in named}
    init_directory(security.files, configs[0].cluster, hosts, days=CERTIFICATE_DAYS, renew=False)
    home = cluster.directory / NAMESRV
    home.mkdir()
    settings = [
        f"{one.key} = {toml_value(getattr(security, one.key))}" for one in SECURITY_SETTINGS
    ]
    (home / f"{NAMESRV}.toml").write_text("\n".join(["[security]", *settings, ""]), "utf-8")
    return LocalCluster(cluster.directory, [replace(each, security=security) for each in configs])
