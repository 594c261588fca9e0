"""How a server is known to other servers that it asks, and whom it believes."""

from __future__ import annotations

from broker.config.security_config import DISABLED, PERMISSIVE, SecurityConfig
from broker.security.credentials import ClientSecurity, Credentials


def client_security(
    security: SecurityConfig, credentials: Credentials | None = None
) -> ClientSecurity:
    """TLS where the settings name it; where it is permissive, also servers that do not speak it."""
    return ClientSecurity(
        credentials,
        ca=security.files.ca if security.tls != DISABLED else "",
        plain_too=security.tls == PERMISSIVE,
    )
