"""How a node asks the HTTP ports of other nodes: by TLS, or without."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

from broker.security.credentials import ClientSecurity

T = TypeVar("T")


class NodeTls:
    """TLS towards other nodes. With ``plain_too``, one that does not speak it is asked without."""

    def __init__(self, security: ClientSecurity) -> None:
        """Raises :class:`~broker.security.credentials.CredentialsError`."""
        self._tls = security.tls()
        self._plain_too = security.plain_too

    def connector(self, limit: int = 100) -> aiohttp.TCPConnector:
        """Makes connections, at most ``limit`` at a time; 0: any number."""
        return aiohttp.TCPConnector(limit=limit, ssl=True if self._tls is None else self._tls)

    async def ask(self, at: str, send: Callable[[str, bool], Awaitable[T]]) -> T:
        """What ``send`` returns for the URL of ``at``, ``host:port/path``.

        ``send`` raises the errors of aiohttp. It is called once more, without TLS, if no connection
        was made: so nothing was sent. The second argument tells whether keys may travel. Without
        TLS they do only if this node has none: else whoever breaks a handshake would see them.
        """
        if self._tls is None:
            return await send(f"http://{at}", True)
        try:
            return await send(f"https://{at}", True)
        except aiohttp.ClientConnectorError as error:
            if not self._plain_too or not _speaks_no_tls(error.os_error):
                raise
        return await send(f"http://{at}", False)


def _speaks_no_tls(error: OSError) -> bool:
    """Whether it ended the handshake otherwise than by a certificate that is not believed."""
    untrusted = isinstance(error, ssl.SSLCertVerificationError)
    return isinstance(error, (ssl.SSLError, ConnectionResetError)) and not untrusted
