"""One node's link to one peer: the connection that each of them dialled."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import aiohttp
from aiohttp import web

from dledger.wire.transport import Message
from dledger.wire.websocket_frames import MessageReader
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

PATH = "/dledger"
EARLY_MESSAGES_MAX = 64
"""Messages kept of a peer that cannot be answered yet. If more come, the last are kept: the peer
sends lost ones again."""


class DialledConnection(aiohttp.ClientWebSocketResponse):
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


class PeerLink:
    """Both connections to one peer, and what waits to be sent."""

    def __init__(self, peer: str, address: str, *, wanted: bool = True) -> None:
        self.peer = peer
        self.address = address
        self.wanted = wanted
        """Whether it is to a member. One to a stranger lasts as long as the stranger's own
        connection."""
        self.dials = 0
        """How often the stranger was dialled."""
        self.reader: MessageReader | None = None  # under `listening`
        self._unfinished: tuple[int, int] = (0, 0)  # a message under way, and how many looks at it
        self.task: asyncio.Task[None] | None = None
        self.listening: aiohttp.ClientWebSocketResponse | None = None
        self.heard: asyncio.Transport | None = None  # under `listening`
        self.misbehaved = False
        """Whether the peer broke the protocol on that connection."""
        self.refused = ""
        """Why we did not talk to the node that answered there."""
        self.speaking: web.WebSocketResponse | None = None
        self.socket: asyncio.Transport | None = None  # under `speaking`
        self.features: frozenset[str] = frozenset()
        """What the peer announced on the connection that it dialled."""
        self.up = False
        self.early: deque[Message] = deque(maxlen=EARLY_MESSAGES_MAX)
        """Messages of the peer from before the link was up on our side."""
        self.dial_now = asyncio.Event()

    def tell_refused(self, reason: str) -> None:
        """Logs why we do not talk to the node that answered: once, until we do or the reason
        changes."""
        if reason != self.refused:
            log.error("no link to %s: %s", self.peer, reason, extra=FROM_OUTSIDE)
        self.refused = reason

    def looks_at_same_message(self) -> int:
        """How often in a row, with this time, a look found the same message begun and not whole."""
        if self.reader is None or not self.reader.waits:
            self._unfinished = (0, 0)
        else:
            number, looks = self._unfinished
            same = number == self.reader.messages
            self._unfinished = (self.reader.messages, looks + 1 if same else 1)
        return self._unfinished[1]
