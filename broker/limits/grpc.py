"""Limits of the gRPC port."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Of the gRPC port."""

    calls_max: int = 4_096
    """Calls that are handled at a time, of all connections; a further one is refused as busy."""

    streams_max: int = 4_096
    """Telemetry streams: each client has one. Each takes some 50 KB."""

    refused_streams_max: int = 256
    """Refused streams that stay until their client has said its first word, which it would else
    take for lost."""

    commands_max: int = 64
    """That wait for one client, which does not read its stream."""

    settings_bytes_max: int = 128 << 10
    """Bytes of a client's settings, which are kept as long as its stream."""

    connection_streams_max: int = 1_024
    """Calls and streams of one connection; further ones wait in the client."""
    connections_max: int = 4_096

    handshakes_max: int = 256
    """With permissive TLS, connections whose first byte or handshake has not come."""

    bytes_max: int = 64 << 20
    """Of the requests that are handled at a time; beyond, a further one is refused as busy."""

    held_sends_max: int = 1_024
    """Of these calls, sends of clients beyond a quota; a further one is refused as busy."""
    held_bytes_max: int = 16 << 20
    """Of the bytes, those of such sends."""

    metadata_max: int = 16 << 10
    """Bytes of a call's metadata."""
    idle_seconds: float = 120.0
    """A connection without a call or a stream for so long is closed."""

    ping_seconds: float = 30.0
    """After so long without a byte a connection is asked for a sign of life, and closed after half
    as long without one."""

    name_size_max: int = 512
    """Characters of a message's id, and of a client's."""

    message_group_size_max: int = 64
    """RocketMQ's ``maxMessageGroupSize``."""
    recovery_seconds_max: int = 7 * 86_400
    """The longest time until a producer is asked about a transaction."""

    batch_max: int = 1_024
    """Messages in one send, or handles in one acknowledgement."""
    long_poll_seconds: float = 20.0
    """How long a push consumer is told to wait for messages."""

    receive_max: int = 32
    """Messages that a push consumer is told to ask for at a time."""

    renewed_seconds: float = 60.0
    """How long a message is invisible whose time is prolonged while its consumer works."""

    renewed_seconds_max: float = 3 * 3600.0
    """It is not prolonged beyond this, as in RocketMQ's proxy."""

    unanswered_seconds_max: float = 600.0
    """The same of one that may never have reached its consumer: the leader died, or the call ended,
    at that moment."""

    routes_max: int = 1_024
    """Routes of other groups that are remembered."""

    route_seconds: float = 1.0
    """For how long."""
    nameserver_seconds: float = 1.0
    """How long a NameServer may take to answer."""


GRPC = GrpcLimits()
