"""TLS on ports for clients: remoting, HTTP, NameServer."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.wire.tls_contexts import TlsContexts, TlsFiles
from dledger.wire.tls_server import TlsServer, TlsServerLimits
from store.quoting import FROM_OUTSIDE

log = logging.getLogger("dledger.tls")


class PortTls(NamedTuple):
    """The TLS of a port. ``context`` gives the context for a new handshake. With ``plain`` the port
    also accepts connections without TLS."""

    context: Callable[[], ssl.SSLContext]
    plain: bool

    async def listen(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        limits: TlsServerLimits,
    ) -> TlsServer:
        """Serves the port. Raises ``OSError`` if the address cannot be used."""
        server = TlsServer(protocol, self.context, plain=self.plain, refused=_tell, limits=limits)
        await server.start(host, port)
        return server


def waiting_limits(
    handshakes_max: int, connections_max: int, seconds: float, backlog: int
) -> TlsServerLimits:
    """The limits of connections before they count: at most an eighth of the connections, because
    they take descriptors too."""
    return TlsServerLimits(min(handshakes_max, max(connections_max // 8, 1)), seconds, backlog)


def port_tls(files: TlsFiles, *, plain: bool, application_protocols: Sequence[str] = ()) -> PortTls:
    """The TLS of a port by the files of a server. Client certificates are optional.

    TLS 1.2 is allowed for older RocketMQ clients. ``application_protocols``: the protocols offered
    by ALPN, such as ``h2``. Raises :class:`~dledger.wire.tls_contexts.TlsFilesError`.
    """
    contexts = TlsContexts(files, clients_optional=True, minimum=ssl.TLSVersion.TLSv1_2)

    def context() -> ssl.SSLContext:
        found = contexts.server_context()
        if application_protocols:
            found.set_alpn_protocols([*application_protocols])
        return found

    return PortTls(context, plain)


def _tell(host: str, why: str) -> None:
    log.warning("%s: closed: %s", host, why, extra=FROM_OUTSIDE)
