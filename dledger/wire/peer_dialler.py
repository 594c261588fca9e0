"""Dialling a peer: over TLS if the node has a certificate, and who answers must be the peer."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

import aiohttp

from dledger.errors import PeerError
from dledger.wire.codec import MESSAGE_BYTES_MAX
from dledger.wire.features import FEATURES, HEADER, pack_features
from dledger.wire.peer_identity import PeerSecurity
from dledger.wire.peer_link import PATH, DialledConnection
from dledger.wire.tls_server import tls_reason
from store.quoting import FROM_OUTSIDE, shortened

log = logging.getLogger(__name__)

ANNOUNCED = {HEADER: pack_features(FEATURES)}

# A connection that only listens would never notice that it is half open. The kernel asks for us:
# pings of the WebSocket would arm a timer again for every message.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0), 5),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0), 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0), 3),
)


class PeerDialler:
    """Dials peers, while it is open."""

    def __init__(self, security: PeerSecurity | None, seconds: float) -> None:
        """``seconds`` are from the dialling to the end of the WebSocket's handshake."""
        self._security = security
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None
        self.is_open = False
        """Whether peers are dialled at all."""

    def open(self) -> None:
        """From now on, until :meth:`close`."""
        self.is_open = True
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(_refuse_redirect)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False),
            timeout=aiohttp.ClientTimeout(total=None),
            ws_response_class=DialledConnection,
            trace_configs=[trace],
        )

    def shut(self) -> None:
        """Nobody is dialled any more; :meth:`close` is to follow, behind all connections."""
        self.is_open = False

    async def close(self) -> None:
        """Gives back what it took. It may never have been opened."""
        if self._session is not None:
            await self._session.close()

    async def dial(self, peer: str, address: str) -> DialledConnection:
        """A connection on which nothing is said yet. Raises ``OSError``,
        :class:`aiohttp.ClientError` and :class:`~dledger.errors.PeerError`.

        A permissive node tries again without TLS where TLS fails.
        """
        security = self._security
        if security is None:
            return await self._connect(f"http://{address}{PATH}")
        try:
            return await self._connect_securely(peer, f"https://{address}{PATH}", security)
        except PeerError as error:
            if security.admission.required:
                raise
            connection = await self._connect(f"http://{address}{PATH}")
            log.warning("%s is dialled without TLS: %s", peer, error, extra=FROM_OUTSIDE)
            return connection

    async def _connect_securely(
        self, peer: str, url: str, security: PeerSecurity
    ) -> DialledConnection:
        try:
            connection = await self._connect(url, security.contexts.client_context())
        except aiohttp.ClientConnectorCertificateError as error:
            raise PeerError(tls_reason(error.certificate_error)) from error
        except aiohttp.ClientConnectorSSLError as error:
            raise PeerError(tls_reason(error.os_error)) from error
        except (aiohttp.ServerDisconnectedError, aiohttp.WSServerHandshakeError) as error:
            raise PeerError(f"it does not take us: {shortened(error)}") from error
        try:
            certified = security.admission.certified(connection.transport)
            security.admission.check_dialled(peer, certified)
        except PeerError:
            connection.transport.abort()
            raise
        return connection

    async def _connect(self, url: str, context: ssl.SSLContext | bool = True) -> DialledConnection:
        assert self._session is not None  # noqa: S101 - it was opened
        async with asyncio.timeout(self._seconds):
            connection = await self._session.ws_connect(
                url, max_msg_size=MESSAGE_BYTES_MAX, compress=0, headers=ANNOUNCED, ssl=context
            )
        assert isinstance(connection, DialledConnection)  # noqa: S101 - the session makes no other
        _keep_alive(connection.get_extra_info("socket"))
        return connection


async def _refuse_redirect(*_: object) -> None:
    raise aiohttp.ClientError("a peer that sends us elsewhere")


def _keep_alive(connection: socket.socket) -> None:
    for level, option, value in KEEPALIVE:
        if option:  # not every system has them all
            connection.setsockopt(level, option, value)
