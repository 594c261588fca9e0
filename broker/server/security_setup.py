"""Reads the files of the security directory that a server needs by its settings."""

from __future__ import annotations

from broker.config.node_config import NodeConfig
from broker.config.security_config import DISABLED, ENFORCING, OFF, PERMISSIVE, SecurityConfig
from broker.config.setting_checks import ConfigError
from broker.security.cluster_secrets import ClusterSecrets, read_cluster_secrets
from broker.security.port_tls import PortTls, port_tls
from dledger.wire.peer_identity import Admission, PeerIdentity, PeerSecurity
from dledger.wire.revoked_certificates import RevokedCertificates
from dledger.wire.tls_contexts import TlsContexts, TlsFiles, TlsFilesError


def read_secrets(security: SecurityConfig) -> ClusterSecrets | None:
    """The secrets of the cluster; None if access control is off.

    Raises :class:`~broker.config.setting_checks.ConfigError`, which names the file.
    """
    if security.access_control == OFF:
        return None
    files = security.files
    try:
        return read_cluster_secrets(files.cluster_secret, files.admin_profile)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def read_peer_security(config: NodeConfig) -> PeerSecurity | None:
    """The TLS certificates between peers; None if ``peers`` is off.

    Raises :class:`~broker.config.setting_checks.ConfigError`, which names the file.
    """
    if config.security.peers == OFF:
        return None
    files = config.security.files
    own = TlsFiles(files.ca, files.certificate(config.name), files.key(config.name))
    try:
        contexts = TlsContexts(own)
    except TlsFilesError as error:
        raise ConfigError(str(error)) from error
    identity = PeerIdentity(config.cluster, config.group, config.node)
    revoked = RevokedCertificates(files.revoked)
    try:
        revoked.read()
    except OSError as error:
        raise ConfigError(f"{files.revoked}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return PeerSecurity(contexts, Admission(identity, config.security.peers == ENFORCING, revoked))


def read_port_tls(security: SecurityConfig, name: str) -> PortTls | None:
    """The TLS of a port with the certificate ``name``; None if TLS is disabled.

    Raises :class:`~broker.config.setting_checks.ConfigError`, which names the file.
    """
    if security.tls == DISABLED:
        return None
    files = security.files
    try:
        return port_tls(
            TlsFiles(files.ca, files.certificate(name), files.key(name)),
            plain=security.tls == PERMISSIVE,
        )
    except TlsFilesError as error:
        raise ConfigError(str(error)) from error
