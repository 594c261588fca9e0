"""Peer messages over aiohttp WebSockets.

Every node dials each of its peers, says who it is, and from then on *listens* on that connection;
it speaks on the connections that its peers dialled. So bulk data always flows from the accepting to
the dialling side, where WebSocket frames need no masking (RFC 6455, 5.3). A link is up when both
connections stand, and lost when either breaks: a process that dies closes both at once.

Members are dialled for ever. A peer of another name is dialled back a few times, on the host that
it dials from, and forgotten when its connection ends; there are few such at a time
(``wire/stranger_limits.py``). What anybody may hold open or leave unfinished is in
:class:`~dledger.config.PeerLimits`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

import aiohttp
from aiohttp import hdrs, web

from dledger.config import PeerLimits
from dledger.errors import DLedgerError, PeerError
from dledger.wire.codec import MESSAGE_BYTES_MAX, MessageEncoder, decode_message
from dledger.wire.endpoint import Endpoint, is_address, join_host_port
from dledger.wire.features import HEADER, unpack_features
from dledger.wire.greeting import Greeting, host_of, pack_greeting, unpack_greeting
from dledger.wire.peer_dialler import PeerDialler
from dledger.wire.peer_identity import Admission, PeerIdentity, PeerSecurity
from dledger.wire.peer_link import DialledConnection, PeerLink
from dledger.wire.peer_listener import PeerListener
from dledger.wire.stranger_limits import StrangerLimits
from dledger.wire.transport import Message, TransportHandler
from dledger.wire.websocket_frames import MessageReader, frame_header
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

QUEUE_BYTES_MAX = 64 << 20
STRANGER_QUEUE_BYTES_MAX = 1 << 20
DIAL_SECONDS_FIRST = 0.02
DIAL_SECONDS_MAX = 0.5
MISBEHAVED_SECONDS_MAX = 5.0
FORGIVEN_SECONDS = 10.0
"""Seconds. After a connection of this length the peer's earlier faults are forgotten."""
LOOKS = 4
"""After so many looks at one unfinished message its time is over."""


class WebSocketTransport:
    """The transport of one node of one group. ``peers`` maps node ids to ``host:port``.

    It listens at ``host`` and ``port``. Peers dial ``address``, by default the same.
    """

    def __init__(
        self,
        *,
        group: str,
        node: str,
        host: str,
        port: int,
        address: str = "",
        peers: Mapping[str, str],
        limits: PeerLimits | None = None,
        security: PeerSecurity | None = None,
    ) -> None:
        self._limits = limits or PeerLimits()
        self._known = dict(peers)  # where members are, as settings and the log say
        self._stranger_limits = StrangerLimits(self._limits)
        self._listener = PeerListener(self._limits, security)
        self._dialler = PeerDialler(security, self._limits.greeting_seconds)
        nobody_certified = Admission(PeerIdentity("", group, node), required=False)
        self._admission = security.admission if security else nobody_certified
        self._look: asyncio.TimerHandle | None = None
        self._group = group
        self._node = node
        self._host = host
        self._port = port
        self._address = address or join_host_port(host, port)
        self._links = {peer: PeerLink(peer, address) for peer, address in peers.items()}
        self._encoder = MessageEncoder()
        self._handler: TransportHandler

    async def start(self, handler: TransportHandler) -> None:
        """Listens and dials. ``OSError`` if the port is taken; nothing is left open then."""
        self._handler = handler
        try:
            await self._listener.open(self._host, self._port, self._accept)
        except OSError:
            await self.stop()
            raise
        self._dialler.open()
        self._look_at_links()
        for link in self._links.values():
            self._dial(link)

    async def stop(self) -> None:
        """Closes every connection; no callback comes after. It may not have been started."""
        self._dialler.shut()  # peers that still come in are not dialled
        if self._look is not None:
            self._look.cancel()
        tasks = [link.task for link in self._links.values() if link.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in [*self._links.values()]:
            link.up = False
            if link.speaking is not None:
                await link.speaking.close()
        await self._dialler.close()
        await self._listener.close()

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
        waiting_max = QUEUE_BYTES_MAX if link.wanted else STRANGER_QUEUE_BYTES_MAX
        if link.socket.get_write_buffer_size() > waiting_max:
            return
        payload = self._encoder.encode(message)
        link.socket.writelines((frame_header(sum(map(len, payload))), *payload))

    def reset(self, peer: str) -> None:
        """See :class:`~dledger.wire.transport.Transport`. Both connections end. The peer speaks on
        the one that we dialled, so nothing is heard of it until we dial again.
        """
        link = self._links.get(peer)
        if link is None:
            return
        for connection in (link.heard, link.socket):
            if connection is not None:
                connection.abort()
        link.misbehaved = link.heard is not None

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """See :class:`~dledger.wire.transport.Transport`."""
        for peer, address in addresses.items():
            try:
                host_of(address)
                self._known[peer] = address
            except PeerError as error:
                log.error("%s cannot be dialled: %s", peer, error)
        for peer in members:
            link, known = self._links.get(peer), self._known.get(peer)
            if link is None and known is not None and peer != self._node:
                self._links[peer] = link = PeerLink(peer, known)
            if link is not None:
                self._want(link)
        for peer, link in self._links.items():
            if peer not in members:
                link.wanted = False

    def _want(self, link: PeerLink) -> None:
        if not link.wanted:
            link.wanted = True
            self._stranger_limits.forget(link.peer)
            if link.reader is not None:
                link.reader.size_max = MESSAGE_BYTES_MAX
            if not link.up:
                link.address = self._known.get(link.peer, link.address)
        self._dial(link)

    # --- the connection that we dialled

    def _dial(self, link: PeerLink) -> None:
        """Unless there is an end: peers dial until the port is closed."""
        if self._dialler.is_open and (link.task is None or link.task.done()):
            link.task = asyncio.create_task(self._listen(link))

    async def _listen(self, link: PeerLink) -> None:
        loop = asyncio.get_running_loop()
        pause = after_offence = DIAL_SECONDS_FIRST
        while link.wanted or (link.speaking and link.dials < self._limits.stranger_dials):
            link.dial_now.clear()
            link.misbehaved = False
            link.dials += not link.wanted
            try:
                connection = await self._dialler.dial(link.peer, link.address)
                try:
                    transport = link.heard = self._take_over(link, connection)
                    greeting = Greeting(self._group, self._node, self._address)
                    await connection.send_bytes(pack_greeting(greeting))
                    link.listening, link.refused = connection, ""
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
                finally:
                    await connection.close()
            except PeerError as error:
                link.tell_refused(str(error))
                pause = DIAL_SECONDS_MAX
            except (aiohttp.ClientError, OSError) as error:
                log.debug("no link to %s: %s", link.peer, error)
            finally:
                link.listening = link.heard = link.reader = None
                link.early.clear()
                self._check_up(link)
            if link.misbehaved and not link.wanted:
                break
            if link.misbehaved:
                # Whoever does so every time may dial us as often as it likes: that changes nothing.
                await asyncio.sleep(after_offence)
                after_offence = min(2 * after_offence, MISBEHAVED_SECONDS_MAX)
            else:
                await self._pause(link, pause)
                pause = min(2 * pause, DIAL_SECONDS_MAX)
        link.task = None
        if link.socket is not None:
            link.socket.abort()
        self._forget(link)

    async def _pause(self, link: PeerLink, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await link.dial_now.wait()
        except TimeoutError:
            pass

    def _take_over(self, link: PeerLink, connection: DialledConnection) -> asyncio.Transport:
        """Reads its messages past aiohttp, off the transport that is returned. The peer has sent
        none yet: it waits for a greeting."""
        transport = connection.transport

        def received(frame: memoryview) -> bool:
            taken = False
            try:
                message = decode_message(frame)
                if link.up:
                    self._handler.on_message(link.peer, message)
                elif len(frame) <= self._limits.early_bytes_max:
                    link.early.append(message)  # an answer would be dropped
                taken = True
            except PeerError as error:
                log.error("dropping the link to %s: %s", link.peer, error, extra=FROM_OUTSIDE)
                transport.abort()
            finally:
                if not taken:
                    link.misbehaved = True
            return not link.misbehaved

        size_max = MESSAGE_BYTES_MAX if link.wanted else self._limits.stranger_message_bytes_max
        link.reader = MessageReader.put_before_protocol(transport, size_max, received)
        return transport

    def _look_at_links(self) -> None:
        """Breaks links on which a message was begun and is not whole in time, and those of revoked
        certificates. Looks now and then: a timer for each message would cost more than it."""
        seconds = self._limits.message_seconds / LOOKS
        self._look = asyncio.get_running_loop().call_later(seconds, self._look_at_links)
        for link in self._links.values():
            if link.looks_at_same_message() > LOOKS and link.heard is not None:
                log.error("dropping the link to %s: half a message, and no end of it", link.peer)
                link.misbehaved = True
                link.heard.abort()
            try:
                for transport in (link.heard, link.socket):
                    self._admission.certified(transport)
            except PeerError as error:
                log.error("dropping the link to %s: %s", link.peer, error, extra=FROM_OUTSIDE)
                self.reset(link.peer)

    async def _ended(self, link: PeerLink, connection: aiohttp.ClientWebSocketResponse) -> None:
        """Returns when it broke or was closed; whatever comes past the messages means the end."""
        last = await connection.receive()
        if last.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}:
            log.error("%s sent something else than whole messages", link.peer, extra=FROM_OUTSIDE)
            link.misbehaved = True

    # --- the connection that the peer dialled

    async def _accept(self, request: web.Request) -> web.WebSocketResponse:
        if hdrs.ORIGIN in request.headers:  # a browser asks for a page, and peers are none
            raise web.HTTPForbidden(text="no page may speak to a peer's port")
        try:
            certified = self._admission.certified(request.transport)
            self._admission.check_connected(certified)
        except PeerError as error:
            self._listener.refused(request.remote, error)
            raise web.HTTPForbidden(text=str(error)) from None
        connection = web.WebSocketResponse(
            max_msg_size=self._limits.greeting_bytes_max, compress=False, autoping=False
        )
        try:
            await connection.prepare(request)
        except ValueError as error:  # aiohttp's own, for a key that is no base64
            raise web.HTTPBadRequest(text="no handshake of a WebSocket") from error
        try:
            link = await self._hello(connection, request.remote or "", certified)
        except DLedgerError as error:
            self._listener.refused(request.remote, error)
            reason = str(error).encode()[:120]
            await connection.close(code=aiohttp.WSCloseCode.POLICY_VIOLATION, message=reason)
            return connection
        self._listener.greeted(request.protocol)
        if link.speaking is not None:
            # The peer dialled again before we noticed that the old connection is dead.
            if link.socket is not None:
                link.socket.abort()
            link.speaking = None
            self._check_up(link)
        link.speaking = connection
        link.socket = request.transport
        link.features = unpack_features(request.headers.get(HEADER, ""))
        link.dial_now.set()
        self._dial(link)
        self._check_up(link)
        try:
            await connection.receive()  # the peer only listens: whatever comes means the end
        finally:
            if link.speaking is connection:
                link.speaking = link.socket = None
                self._check_up(link)
                if not link.wanted and link.heard is not None:
                    link.heard.abort()
                link.dial_now.set()  # a stranger is not waited for
                self._forget(link)
        return connection

    async def _hello(
        self, connection: web.WebSocketResponse, remote: str, certified: PeerIdentity | None
    ) -> PeerLink:
        try:
            frame = await connection.receive_bytes(timeout=self._limits.greeting_seconds)
        except (TypeError, TimeoutError) as error:
            raise PeerError(f"no greeting: {error}") from error
        greeting = unpack_greeting(frame)
        node, address = greeting.node, greeting.address
        if greeting.group == self._group:
            remote = await self._name_of(remote, address, self._known.get(node))
        self._admission.check_greeting(greeting, certified, remote, self._known.get(node))
        link = self._links.get(node)
        if link is None or not link.wanted:
            self._stranger_limits.forget(node)
            oldest = self._stranger_limits.admit(node, asyncio.get_running_loop().time())
            if oldest is not None:
                self.reset(oldest)
        if link is None:
            # It may be about to be added, or lead by an entry that has not arrived here yet.
            link = self._links[node] = PeerLink(node, address, wanted=False)
        # Who dials knows best where it can be dialled: a node may have moved to another port.
        link.address = address
        link.dials = 0
        return link

    async def _name_of(self, remote: str, address: str, known: str | None) -> str:
        """The host of ``address``, if that is a name of the host ``remote``, else ``remote``.

        The address that is ``known`` needs no such proof. The listener ends what takes too long.
        """
        host, port = Endpoint.parse(address)
        if address == known or is_address(host):
            return remote
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port)
        except OSError:
            return remote
        return host if remote in {where[0] for *_, where in found} else remote

    def _forget(self, link: PeerLink) -> None:
        """Of a stranger that is gone nothing stays."""
        if link.wanted or link.speaking is not None or link.task is not None:
            return
        self._stranger_limits.forget(link.peer)
        if self._links.get(link.peer) is link:
            del self._links[link.peer]

    def _check_up(self, link: PeerLink) -> None:
        up = link.listening is not None and link.speaking is not None
        if up == link.up:
            return
        link.up = up
        if not up:
            self._handler.on_peer_lost(link.peer)
            return
        self._handler.on_peer_connected(link.peer, link.features)
        while link.up and link.early:
            self._handler.on_message(link.peer, link.early.popleft())
