"""What a peer says of itself on the connection that it dialled, before anything else.

One binary message, sealed like all others (:mod:`dledger.wire.codec`): a MessagePack array of the
protocol's version, the group, the name of the node, and the ``host:port`` at which it is dialled.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

import msgpack

from dledger.errors import PeerError
from dledger.raft.configuration import is_node_name
from dledger.wire.codec import seal, unpack_row, unseal
from dledger.wire.endpoint import Endpoint, EndpointError

PROTOCOL_VERSION = 4


class Greeting(NamedTuple):
    """Who dials, and where it listens."""

    group: str
    node: str
    address: str


def pack_greeting(greeting: Greeting) -> bytes:
    """The reverse of :func:`unpack_greeting`."""
    return seal(msgpack.packb([PROTOCOL_VERSION, *greeting]))


def unpack_greeting(frame: bytes) -> Greeting:
    """Raises :class:`~dledger.errors.PeerError` for anything else, and for another version."""
    try:
        version, *fields = unpack_row(unseal(frame))
        group, node, address = fields
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise PeerError(f"no greeting: {error}") from error
    if version != PROTOCOL_VERSION:
        raise PeerError(f"it speaks version {version!r:.20}, we speak {PROTOCOL_VERSION}")
    if {type(field) for field in fields} != {str} or not is_node_name(node):
        raise PeerError(f"no node may be called {node!r:.100}")
    host_of(address)
    return Greeting(group, node, address)


def host_of(address: str) -> str:
    """The host of a ``host:port``. Raises :class:`~dledger.errors.PeerError`."""
    try:
        return Endpoint.parse(address).host
    except EndpointError as error:
        raise PeerError(f"it is nowhere: {error}") from None


def check_address(greeting: Greeting, remote: str, known: str | None) -> None:
    """Nobody is dialled on a host from which it does not dial, unless that is ``known`` to be its.

    Raises :class:`~dledger.errors.PeerError`.
    """
    hosts = [remote] if known is None else [remote, host_of(known)]
    if not any(_is_same(host_of(greeting.address), host) for host in hosts):
        raise PeerError(f"{greeting.node} says that it is at {greeting.address}, not {remote}")


def _is_same(host: str, other: str) -> bool:
    """Whether both names, or addresses, are of one host, as far as can be told without asking."""
    if host == other:
        return True
    try:
        here, there = ipaddress.ip_address(host), ipaddress.ip_address(other)
    except ValueError:
        return False
    return here.is_loopback and there.is_loopback
