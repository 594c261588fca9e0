"""How the ports of a server speak TLS to clients, as its settings say."""

from __future__ import annotations

from broker.config.security_config import DISABLED, PERMISSIVE, SecurityConfig
from broker.config.setting_checks import ConfigError
from broker.security.port_tls import PortTls, port_tls
from dledger.wire.tls_contexts import TlsFiles, TlsFilesError


def read_port_tls(security: SecurityConfig, name: str) -> PortTls | None:
    """By the certificate of that name; None where TLS is disabled.

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
