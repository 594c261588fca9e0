"""Limits of the HTTP port."""

from __future__ import annotations

from typing import NamedTuple


class HttpLimits(NamedTuple):
    """Limits of the HTTP port of a broker."""

    connections_max: int = 512
    """Open connections; the server closes further ones at once."""
    backlog: int = 128
    """Connections that wait to be accepted."""
    handshakes_max: int = 128
    """As :attr:`RemotingLimits.handshakes_max`."""
    kernel_unsent: int = 128 * 1024
    """As :attr:`RemotingLimits.kernel_unsent`."""
    piece_bytes: int = 16 << 10
    """Bytes that are read at a time. Of bytes that are not HTTP, so many are kept until the
    connection ends."""

    idle_seconds: float = 60.0
    """A connection without a request with all its headers is closed after this time."""

    headers_max: int = 64
    """Headers of one request; each has at most 8,190 bytes."""

    stall_seconds: float = 20.0
    """A connection is closed after this time without a byte of a body, or of an answer that the
    peer reads."""

    body_bytes_per_second: int = 16 << 10
    """The least rate of a body that takes longer than ``stall_seconds``."""

    memory_max: int = 64 << 20
    """Bytes of requests and answers in memory, of all connections together; above that a request is
    refused as busy. One request of the largest size always fits."""

    held_sends_max: int = 128
    """Of the requests, sends of clients beyond a quota; further ones are refused as busy."""
    held_bytes_max: int = 16 << 20
    """Of the bytes, those of such sends."""

    body_factor: int = 2
    """A request may have so many times the bytes of the largest body of a message, and
    ``around_body_bytes``. Base64 makes four bytes of three. An escape counts as one byte here,
    because it is one character once it is decoded."""
    escaped_factor: int = 6
    """With escapes counted as they are, a request may have so many times the bytes of both. So a
    text that fits also fits if all of it is escaped. Base64 needs no escapes."""
    around_body_bytes: int = 64 << 10
    """Bytes of a message besides its body."""

    free_bytes: int = 64 << 10
    """The first bytes of each request and answer are not counted: a small one always fits."""

    containers_max: int = 1000
    """Objects and lists in one request, which needs three. Eight megabytes of them, at 300 ns each,
    would block the event loop for as long as an election."""

    strings_max: int = 50_000
    """Strings in one request. All properties of a message together have at most 32,767 bytes."""

    snapshots_max: int = 8
    """Snapshots in a node's own directory of snapshots."""

    path_size_max: int = 4096
    """Characters of a path, as on Linux."""
    path_depth_max: int = 64
    """Levels of a path."""


HTTP = HttpLimits()
