"""The credentials of a server towards other servers, and the authorities that it trusts."""

from __future__ import annotations

from broker.config.security_config import DISABLED, PERMISSIVE, SecurityConfig
from broker.security.credentials import ClientSecurity, Credentials


def client_security(
    security: SecurityConfig, credentials: Credentials | None = None
) -> ClientSecurity:
    """TLS as in the settings; if it is permissive, servers without TLS are accepted too."""
    return ClientSecurity(
        credentials,
        ca=security.files.ca if security.tls != DISABLED else "",
        plain_too=security.tls == PERMISSIVE,
    )
