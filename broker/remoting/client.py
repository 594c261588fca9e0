"""The calling side: one connection to each address, made when the first request needs it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence

from broker.limits import RemotingLimits
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.frame_writer import Bytes
from broker.remoting.pending_requests import Done
from broker.remoting.protocol.errors import (
    CallError,
    ClientClosedError,
    ConnectFailedError,
    ConnectionLostError,
)
from broker.remoting.protocol.fixed_headers import RequestTemplate, TemplateValues
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import NO_SECURITY, ClientSecurity
from dledger.wire.endpoint import Endpoint


class RemotingClient:
    """Sends requests to any number of servers, many at a time over one connection each.

    ``handlers`` serve the requests that a server sends (39, 40, 220, ...), by code; the mapping may
    be filled later. A lost connection fails the requests that wait on it. The next request to that
    address makes a new connection. Nothing is sent twice. ``on_lost`` is called with the address
    when a connection that was made ends without :meth:`close`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handlers: Mapping[int, Handler] | None = None,
        limits: RemotingLimits | None = None,
        *,
        serialization: int = 0,
        on_lost: Callable[[str], None] | None = None,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """Raises :class:`~broker.security.credentials.CredentialsError` if the certificate
        authority in ``security`` cannot be read."""
        self._sign = security.sign()
        self._tls = security.tls()
        self._plain_too = security.plain_too
        self._loop = loop
        self._on_lost = on_lost
        self._dispatch = dispatch_by_code({} if handlers is None else handlers)
        self._limits = limits or RemotingLimits()
        self._serialization = serialization
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[Connection, asyncio.Task[None]] = {}
        self._closed = False

    async def invoke(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),
        *,
        timeout: float = 3.0,  # noqa: ASYNC109 - one timer serves all requests of a connection
    ) -> Frame:
        """The answer, with any response code. Raises a :class:`CallError` if none came."""
        return await self.invoke_nowait(address, code, ext, body, timeout=timeout)

    def invoke_nowait(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),
        *,
        timeout: float = 3.0,
    ) -> asyncio.Future[Frame]:
        """As :meth:`invoke`; the request leaves at the end of this turn of the loop.

        ``timeout`` is in seconds and includes the time to connect.
        """
        if self._closed:
            future: asyncio.Future[Frame] = self._loop.create_future()
            future.set_exception(ClientClosedError(address, "this client is closed"))
            return future
        connection = self._connection(address)
        return connection.invoke(code, ext, body, timeout=timeout)

    def call(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None,
        body: Sequence[Bytes],
        *,
        timeout: float,
        done: Done,
    ) -> None:
        """As :meth:`invoke_nowait`, without a future: ``done`` is called with the answer or the
        error."""
        if self._may_call(address, done):
            self._connection(address).call(code, ext, body, timeout=timeout, done=done)

    def call_template(
        self,
        address: str,
        template: RequestTemplate,
        values: TemplateValues,
        body: Bytes,
        *,
        timeout: float,
        done: Done,
    ) -> None:
        """As :meth:`call`, with a header that ``values`` fill in."""
        connection = self._connections.get(address)
        if connection is None:  # always so once this client is closed
            if not self._may_call(address, done):
                return
            connection = self._connect(address)
        connection.call_template(template, values, body, timeout=timeout, done=done)

    def push_template(
        self, address: str, template: RequestTemplate, values: TemplateValues, body: Bytes
    ) -> None:
        """As :meth:`push`, with a header that ``values`` fill in."""
        if not self._closed:
            self._connection(address).push_template(template, values, body)

    def push(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),
    ) -> None:
        """Sends a one-way request; nobody learns whether it arrived."""
        if not self._closed:
            self._connection(address).push(code, ext, body)

    def oldest_request(self, address: str) -> int | None:
        """The opaque of the request to that address that has waited longest; None if none waits."""
        connection = self._connections.get(address)
        return None if connection is None else connection.oldest_request()

    def give_up(self, address: str, why: str) -> None:
        """Ends the connection to a server, as if the server had closed it."""
        connection = self._connections.get(address)
        if connection is not None:
            self._forget(connection)
            connection.abort(ConnectionLostError, why)

    def leave_others(self, kept: Collection[str]) -> bool:
        """Ends the connections to other servers than ``kept`` on which no request waits. Returns
        whether none is left."""
        others = [each for address, each in self._connections.items() if address not in kept]
        idle = [each for each in others if each.oldest_request() is None]
        for connection in idle:
            self._forget(connection)
            connection.close()
        return len(idle) == len(others)

    async def close(self) -> None:
        """Closes every connection; requests that still wait fail."""
        self._closed = True
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.abort(ClientClosedError, "this client was closed")
        self._connections.clear()

    def _may_call(self, address: str, done: Done) -> bool:
        """Whether this client is open; if not, ``done`` gets the error."""
        if self._closed:
            self._loop.call_soon(done, None, ClientClosedError(address, "this client is closed"))
        return not self._closed

    def _connection(self, address: str) -> Connection:
        return self._connections.get(address) or self._connect(address)

    def _connect(self, address: str) -> Connection:
        connection = Connection(
            self._loop,
            self._dispatch,
            self._limits,
            address=address,
            serialization=self._serialization,
            sign=self._sign,
        )
        connection.on_close(self._lost)
        self._connections[address] = connection
        self._connecting[connection] = self._loop.create_task(self._open(connection))
        return connection

    async def _open(self, connection: Connection) -> None:
        address = connection.remote_address
        try:
            host, port = Endpoint.parse(address)
            async with asyncio.timeout(self._limits.connect_seconds):
                await self._connect_to(connection, host, port)
        except (OSError, ValueError) as error:
            self._forget(connection)
            failure: type[CallError] = ConnectFailedError
            reason = str(error) or f"no connection within {self._limits.connect_seconds:g} s"
            if connection.was_made:
                # Made in the turn of its timeout: the requests that waited for it have failed.
                failure, reason = ConnectionLostError, "the connection was made too late"
            connection.abort(failure, reason)
        finally:
            self._connecting.pop(connection, None)

    async def _connect_to(self, connection: Connection, host: str, port: int) -> None:
        if self._tls is not None:
            try:
                await self._loop.create_connection(lambda: connection, host, port, ssl=self._tls)
                return
            except (ssl.SSLError, ConnectionResetError) as error:
                untrusted = isinstance(error, ssl.SSLCertVerificationError)
                if untrusted or not self._plain_too or connection.was_made:
                    raise
        await self._loop.create_connection(lambda: connection, host, port)

    def _lost(self, connection: Connection) -> None:
        self._forget(connection)
        if self._on_lost is not None and not self._closed:
            self._on_lost(connection.remote_address)

    def _forget(self, connection: Connection) -> None:
        address = connection.remote_address
        if self._connections.get(address) is connection:
            del self._connections[address]
