"""Observers of the events in a group of cores."""

from __future__ import annotations

from typing import NamedTuple

from dledger.errors import InvariantError, PeerError
from dledger.raft.ready import Read, ReadIndex, Write
from dledger.wire.transport import Message


class Packet(NamedTuple):
    """One message in flight."""

    sender: str
    to: str
    message: Message


class RaftState(NamedTuple):
    """The node as others see it."""

    role: str
    term: int
    leader: str | None


class Observer:
    """Gets each event before the next one happens. Does nothing by default."""

    def delivered(self, packet: Packet) -> None: ...

    def lost(self, packet: Packet) -> None: ...

    def connected(self, node: str, peer: str) -> None: ...

    def sent(self, packet: Packet) -> None: ...

    def writes(self, node: str, write: Write, held: bool) -> None: ...

    def durable(self, node: str, write: Write) -> None: ...

    def stands(self, node: str, raft_state: RaftState) -> None: ...

    def commits(self, node: str, first: int, last: int) -> None: ...

    def refuses(self, node: str, error: PeerError) -> None: ...

    def stops(self, node: str, error: InvariantError) -> None: ...

    def reads(self, node: str, read: Read) -> None: ...

    def read_index(self, node: str, answer: ReadIndex) -> None: ...
