"""Every bound on what others can grow in a broker or a NameServer, in one typed place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemotingLimits:
    """Of the remoting port. Defaults are RocketMQ's where it has them (idle, connect)."""

    idle_seconds: float = 120.0
    """A connection over which nothing went in either direction for so long is closed."""

    connections_max: int = 20_000
    """The server closes a connection beyond these as soon as it is accepted."""

    backlog: int = 1024
    """Connections that wait to be accepted; RocketMQ's ``serverSocketBacklogSize``."""

    write_buffer_high: int = 1024 * 1024
    """Bytes that wait for the peer to read; above, the server stops reading its requests."""

    write_buffer_max: int = 64 * 1024 * 1024
    """Answers to earlier requests still come after that; a peer that lets so much wait is cut."""

    pending_max: int = 65_536
    """Requests of one connection that may wait for an answer."""

    connect_seconds: float = 3.0

    stop_seconds: float = 1.0
    """How long a closing server lets peers take the answers that are written already."""


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Of the answers to operators."""

    queues_listed_max: int = 100_000
    """In one answer about the progress of groups; some 100 bytes each, so that it fits a frame.
    Beyond, the question is refused, and may be asked for one group and one topic."""

    empty_queues_max: int = 1024
    """A topic with more queues is listed with those alone that ever had a message."""

    nodes_asked_max: int = 256
    """Nodes that the console asks, whatever a NameServer names."""

    answer_bytes_max: int = 16 << 20
    """Of a node that the console asks; what is larger counts as no answer."""


ADMIN = AdminLimits()
