"""Limits of the remoting port, and of requests that a follower forwards."""

from __future__ import annotations

from typing import NamedTuple


class RemotingLimits(NamedTuple):
    """Limits of the remoting port. Defaults are RocketMQ's if it has them (idle, connect)."""

    idle_seconds: float = 120.0
    """A connection without traffic in either direction is closed after this time."""

    connections_max: int = 20_000
    """Open connections; the server closes further ones at once. The limit is lower if the process
    may not open so many files (:mod:`broker.system.file_descriptor_limits`)."""

    backlog: int = 1024
    """Connections that wait to be accepted; RocketMQ's ``serverSocketBacklogSize``."""
    handshakes_max: int = 1024
    """With TLS, connections whose first byte or handshake has not come yet."""
    write_buffer_high: int = 1024 * 1024
    """Bytes that the peer has not read; above that the server handles none of its requests."""
    write_buffer_max: int = 64 * 1024 * 1024
    """Answers to held pulls are still sent above that; then the peer is disconnected."""
    kernel_unsent: int = 128 * 1024
    """Unsent bytes that the kernel buffers for each connection; no budget counts them."""

    pending_max: int = 65_536
    """Requests of one connection that wait for an answer."""

    turn_frames: int = 768
    """Frames, or KiB of body, that are handled before heartbeats and disks get a turn."""

    turn_seconds: float = 0.01
    """The same in time. Only a single request may take longer."""

    unhandled_max: int = 128 * 1024 * 1024
    """Bytes of incomplete frames, and of requests that wait for a turn, of all connections. Above
    that, the connection with the oldest of them is closed."""

    unhandled_each: int = 16 * 1024
    """The part of these bytes that each connection may always have."""

    unread_max: int = 256 * 1024 * 1024
    """Bytes of answers that peers have not read, of all connections. Above that, the connection
    that has had some for the longest time is closed."""

    unread_each: int = 64 * 1024
    """The part of these bytes that each connection may always have."""

    progress_seconds: float = 15.0
    progress_bytes: int = 8 * 1024
    """An incomplete frame must get so many bytes in so many seconds: 5 kbit/s are enough."""
    header_template_size_max: int = 4096
    header_templates_max: int = 64
    """Bytes of a header with a template; templates of a connection, before all are dropped."""

    connect_seconds: float = 3.0

    stop_seconds: float = 1.0
    """How long a closing server waits for peers to read the written answers."""


REMOTING = RemotingLimits()


class ForwardingLimits(NamedTuple):
    """Limits of the requests that a follower forwards to the leader."""

    wait_seconds: float = 1.0
    """How long requests wait for a leader. Then all are refused at once until there is one."""

    waiting_max: int = 10_000
    waiting_bytes_max: int = 32 * 1024 * 1024
    """Waiting requests, and the bytes of their bodies."""

    answer_seconds: float = 5.0
    """How long the leader may take to answer. Clients wait for 3 s by default."""

    http_answer_max: int = 64 * 1024
    """Bytes of the leader's answer over HTTP. An answer to a message has far fewer."""


FORWARDING = ForwardingLimits()
