"""Peer messages over aiohttp WebSockets.

Every node dials each of its peers, says who it is, and from then on *listens* on that connection;
it speaks on the connections that its peers dialled. So bulk data always flows from the accepting to
the dialling side, where WebSocket frames need no masking (RFC 6455, 5.3). A link is up when both
connections stand, and lost when either breaks: a process that dies closes both at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import aiohttp
import msgpack
from aiohttp import web

from dledger.codec import MESSAGE_BYTES_MAX, MessageEncoder, decode_message, seal, unseal
from dledger.errors import DLedgerError, PeerError
from dledger.frames import MessageReader, frame_header
from dledger.listening import BoundedSite
from dledger.messages import Message
from dledger.requestlog import RequestLog
from store.outside import FROM_OUTSIDE

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 4
PATH = "/dledger"
QUEUE_BYTES_MAX = 64 << 20
DIAL_SECONDS_FIRST = 0.02
DIAL_SECONDS_MAX = 0.5
MISBEHAVED_SECONDS_MAX = 5.0
FORGIVEN_SECONDS = 10.0
"""A connection that stood for so long makes up for what the peer did before."""
HELLO_SECONDS = 5.0
EARLY_MESSAGES_MAX = 64
"""Of a peer that cannot be answered yet; of more the last are kept: it sends anew what is lost."""

# A connection that only listens would never notice that it is half open. The kernel asks for us:
# pings of the WebSocket would arm a timer anew for every message.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0), 5),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0), 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0), 3),
)


class TransportHandler(Protocol):
    """What a transport tells the node, always on the event loop."""

    def on_message(self, sender: str, message: Message) -> None: ...

    def on_peer_connected(self, peer: str) -> None: ...

    def on_peer_lost(self, peer: str) -> None: ...


class Transport(Protocol):
    """Carries messages to peers; it may lose them, and never waits."""

    async def start(self, handler: TransportHandler) -> None: ...

    async def stop(self) -> None: ...

    def send(self, peer: str, message: Message) -> None: ...

    def reset(self, peer: str) -> None:
        """Breaks the link to a peer that misbehaved; it is dialled anew, later each time."""

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """Links are wanted to these members, and to nobody else once a link breaks; ``addresses``
        are those that were not known from the start."""


class _Dialled(aiohttp.ClientWebSocketResponse):
    """A connection that was dialled, with the transport that it stands on."""

    # aiohttp documents ``ws_response_class``, but not what such a class is made with: everything
    # is passed on as it comes. The response is all that this one looks at, since its `connection`
    # and the `transport` of that are public; from the finished object they are not to be had.
    def __init__(
        self,
        reader: Any,
        writer: Any,
        protocol: str | None,
        response: aiohttp.ClientResponse,
        *rest: Any,
        **more: Any,
    ) -> None:
        super().__init__(reader, writer, protocol, response, *rest, **more)
        transport = response.connection and response.connection.transport
        assert transport is not None  # noqa: S101 - aiohttp has just made sure of it
        self.transport = transport


class _Link:
    """Both connections to one peer, and what waits to be sent."""

    def __init__(self, peer: str, address: str) -> None:
        self.peer = peer
        self.address = address
        self.wanted = True
        self.task: asyncio.Task[None] | None = None
        self.listening: aiohttp.ClientWebSocketResponse | None = None
        self.heard: asyncio.Transport | None = None  # under `listening`
        self.misbehaved = False
        """Whether the peer said on that connection what it should not."""
        self.speaking: web.WebSocketResponse | None = None
        self.socket: asyncio.Transport | None = None  # under `speaking`
        self.up = False
        self.early: deque[Message] = deque(maxlen=EARLY_MESSAGES_MAX)
        """What the peer said while it took the link to be up and we did not yet."""
        self.dial_now = asyncio.Event()

    @property
    def url(self) -> str:
        """Where to dial."""
        return f"http://{self.address}{PATH}"


class WebSocketTransport:
    """The transport of one node of one group. ``peers`` maps node ids to ``host:port``."""

    def __init__(
        self,
        *,
        group: str,
        node: str,
        host: str,
        port: int,
        peers: Mapping[str, str],
        connections_max: int = 1024,
    ) -> None:
        self._connections_max = connections_max
        self._group = group
        self._node = node
        self._host = host
        self._port = port
        self._address = f"{host}:{port}"
        self._links = {peer: _Link(peer, address) for peer, address in peers.items()}
        self._encoder = MessageEncoder()
        self._handler: TransportHandler
        self._session: aiohttp.ClientSession | None = None  # None: nobody is dialled
        self._runner: web.AppRunner | None = None

    async def start(self, handler: TransportHandler) -> None:
        """Listens and dials. ``OSError`` if the port is taken; nothing is left open then."""
        self._handler = handler
        app = web.Application()
        app.router.add_get(PATH, self._accept)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, logger=RequestLog(log, FROM_OUTSIDE)
        )
        try:
            await self._runner.setup()
            await BoundedSite(
                self._runner, self._host, self._port, connections_max=self._connections_max
            ).start()
        except OSError:
            await self.stop()
            raise
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            ws_response_class=_Dialled,
        )
        for link in self._links.values():
            self._dial(link)

    async def stop(self) -> None:
        """Closes every connection; no callback comes after. It may not have been started."""
        session, self._session = self._session, None  # peers that still come in are not dialled
        tasks = [link.task for link in self._links.values() if link.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in [*self._links.values()]:
            link.up = False
            if link.speaking is not None:
                await link.speaking.close()
        if session is not None:
            await session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def send(self, peer: str, message: Message) -> None:
        """Writes a message; dropped if the link is down or the peer does not read.

        It leaves at once, header and payload in one call. aiohttp would write them one after the
        other, waking the peer twice, and only in a coroutine, that is a turn of the loop later:
        after everything that clients have sent in the meantime.
        """
        link = self._links.get(peer)
        if link is None or not link.up or link.socket is None:
            return
        if link.socket.is_closing():  # it broke in this turn; who waits for it is told in the next
            return
        if link.socket.get_write_buffer_size() > QUEUE_BYTES_MAX:
            return
        payload = self._encoder.encode(message)
        link.socket.writelines((frame_header(sum(map(len, payload))), *payload))

    def reset(self, peer: str) -> None:
        """See :class:`Transport`. Both connections end: on the one that we dialled the peer speaks,
        so that nothing is heard of it until we dial again."""
        link = self._links.get(peer)
        if link is None:
            return
        for connection in (link.heard, link.socket):
            if connection is not None:
                connection.abort()
        link.misbehaved = link.heard is not None

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """See :class:`Transport`."""
        for peer in members:
            link = self._links.get(peer)
            if link is not None:
                link.wanted = True
            elif peer in addresses and peer != self._node:
                self._links[peer] = link = _Link(peer, addresses[peer])
            if link is not None:
                self._dial(link)
        for peer, link in self._links.items():
            if peer not in members:
                link.wanted = False

    # --- the connection that we dialled

    def _dial(self, link: _Link) -> None:
        """Wants the link, unless there is an end: peers dial until the port is closed."""
        if self._session is not None and (link.task is None or link.task.done()):
            link.wanted = True
            link.task = asyncio.create_task(self._listen(link, self._session))

    async def _listen(self, link: _Link, session: aiohttp.ClientSession) -> None:
        loop = asyncio.get_running_loop()
        pause = after_offence = DIAL_SECONDS_FIRST
        while link.wanted:
            link.dial_now.clear()
            link.misbehaved = False
            try:
                async with session.ws_connect(
                    link.url, max_msg_size=MESSAGE_BYTES_MAX, compress=0
                ) as connection:
                    _keep_alive(connection.get_extra_info("socket"))
                    transport = link.heard = self._take_over(link, connection)
                    greeting = [PROTOCOL_VERSION, self._group, self._node, self._address]
                    await connection.send_bytes(seal(msgpack.packb(greeting)))
                    link.listening = connection
                    pause = DIAL_SECONDS_FIRST
                    since = loop.time()
                    self._check_up(link)
                    await self._ended(link, connection)
                    # A closing handshake would wait for its answer, with the link taken to be up.
                    transport.abort()
                    if loop.time() - since >= FORGIVEN_SECONDS:
                        after_offence = DIAL_SECONDS_FIRST
                    if connection.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION:
                        log.error("%s refuses to talk to us", link.peer, extra=FROM_OUTSIDE)
                        pause = DIAL_SECONDS_MAX
            except (aiohttp.ClientError, OSError) as error:
                log.debug("no link to %s: %s", link.peer, error)
            finally:
                link.listening = link.heard = None
                link.early.clear()
                self._check_up(link)
            if link.misbehaved:
                # Whoever does so every time may dial us as often as it likes: that changes nothing.
                await asyncio.sleep(after_offence)
                after_offence = min(2 * after_offence, MISBEHAVED_SECONDS_MAX)
            else:
                await self._pause(link, pause)
                pause = min(2 * pause, DIAL_SECONDS_MAX)

    async def _pause(self, link: _Link, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await link.dial_now.wait()
        except TimeoutError:
            pass

    def _take_over(
        self, link: _Link, connection: aiohttp.ClientWebSocketResponse
    ) -> asyncio.Transport:
        """Reads its messages past aiohttp, off the transport that is returned. The peer has sent
        none yet: it waits for a greeting."""
        assert isinstance(connection, _Dialled)  # noqa: S101 - what the session was told to make
        transport = connection.transport

        def received(frame: memoryview) -> bool:
            taken = False
            try:
                message = decode_message(frame)
                if link.up:
                    self._handler.on_message(link.peer, message)
                else:
                    link.early.append(message)  # an answer would be dropped
                taken = True
            except PeerError as error:
                log.error("dropping the link to %s: %s", link.peer, error, extra=FROM_OUTSIDE)
                transport.abort()
            finally:
                if not taken:
                    link.misbehaved = True
            return not link.misbehaved

        MessageReader.put_before_protocol(transport, MESSAGE_BYTES_MAX, received)
        return transport

    async def _ended(self, link: _Link, connection: aiohttp.ClientWebSocketResponse) -> None:
        """Returns when it broke or was closed; whatever comes past the messages means the end."""
        last = await connection.receive()
        if last.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}:
            log.error("%s sent something else than whole messages", link.peer, extra=FROM_OUTSIDE)
            link.misbehaved = True

    # --- the connection that the peer dialled

    async def _accept(self, request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse(max_msg_size=1 << 16, compress=False)
        await connection.prepare(request)
        try:
            link = await self._hello(connection)
        except DLedgerError as error:
            log.error("refusing a peer at %s: %s", request.remote, error, extra=FROM_OUTSIDE)
            reason = str(error).encode()[:120]
            await connection.close(code=aiohttp.WSCloseCode.POLICY_VIOLATION, message=reason)
            return connection
        if link.speaking is not None:
            # The peer dialled again before we noticed that the old connection is dead.
            if link.socket is not None:
                link.socket.abort()
            link.speaking = None
            self._check_up(link)
        link.speaking = connection
        link.socket = request.transport
        link.dial_now.set()
        self._check_up(link)
        try:
            await connection.receive()  # the peer only listens: whatever comes means the end
        finally:
            if link.speaking is connection:
                link.speaking = None
                self._check_up(link)
        return connection

    async def _hello(self, connection: web.WebSocketResponse) -> _Link:
        try:
            frame = await connection.receive_bytes(timeout=HELLO_SECONDS)
            version, group, node, address = msgpack.unpackb(unseal(frame))
        except (TypeError, ValueError, TimeoutError, msgpack.UnpackException) as error:
            raise PeerError(f"no greeting: {error}") from error
        if version != PROTOCOL_VERSION:
            raise PeerError(f"it speaks version {version}, we speak {PROTOCOL_VERSION}")
        if group != self._group:
            raise PeerError(f"it is of group {group}, we are of {self._group}")
        if not isinstance(node, str) or not isinstance(address, str) or node == self._node:
            raise PeerError(f"{node} at {address} is no peer of {self._node}")
        link = self._links.get(node)
        if link is None:
            # It may be about to be added, or lead by an entry that has not arrived here yet.
            link = self._links[node] = _Link(node, address)
        # Who dials knows best where it can be dialled: a node may have moved to another port.
        link.address = address
        self._dial(link)
        return link

    def _check_up(self, link: _Link) -> None:
        up = link.listening is not None and link.speaking is not None
        if up == link.up:
            return
        link.up = up
        if not up:
            self._handler.on_peer_lost(link.peer)
            return
        self._handler.on_peer_connected(link.peer)
        while link.up and link.early:
            self._handler.on_message(link.peer, link.early.popleft())


def _keep_alive(connection: socket.socket) -> None:
    for level, option, value in KEEPALIVE:
        if option:  # not every system has them all
            connection.setsockopt(level, option, value)
