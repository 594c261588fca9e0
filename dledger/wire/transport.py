"""The interface of the transport, which carries messages between nodes, and of its handler.

``wire/websocket_transport.py`` is the real one, ``simulator/engine/peer_network.py`` the simulated
one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeAlias

from dledger.raft.messages import RaftMessage
from dledger.wire.service_messages import ServiceMessage

Message: TypeAlias = RaftMessage | ServiceMessage
"""All messages between nodes."""


class TransportHandler(Protocol):
    """What a transport tells the node, always on the event loop."""

    def on_message(self, sender: str, message: Message) -> None: ...

    def on_peer_connected(self, peer: str, features: Collection[str] = (), /) -> None:
        """A link came up; ``features`` are those that the peer announced
        (:mod:`dledger.wire.features`)."""

    def on_peer_lost(self, peer: str) -> None: ...


class Transport(Protocol):
    """Carries messages to peers; it may lose them, and never waits."""

    async def start(self, handler: TransportHandler) -> None: ...

    async def stop(self) -> None: ...

    def send(self, peer: str, message: Message) -> None: ...

    def reset(self, peer: str) -> None:
        """Breaks the link to a peer that misbehaved; it is dialled again, later each time."""

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """Links are wanted to these members, and to nobody else once a link breaks; ``addresses``
        are those that were not known from the start."""
