"""Limits of the gRPC port."""

from __future__ import annotations

from typing import NamedTuple


class GrpcLimits(NamedTuple):
    """Limits of the gRPC port."""

    calls_max: int = 4_096
    """Calls whose answer the client has not read yet, of all connections; further ones are refused
    as busy."""

    receives_max: int = 3_072
    """Of these calls, receives and pulls, which may wait for messages; further ones are refused as
    busy. The others are left for sends, acknowledgements and heartbeats."""

    streams_max: int = 4_096
    """Telemetry streams: each client has one. Each takes about 50 KB."""

    refused_streams_max: int = 256
    """Refused streams that stay open until the client's first message; otherwise the client would
    take the connection for lost."""

    commands_max: int = 64
    command_bytes_max: int = 1 << 20
    """Messages that wait for one client that does not read its stream, and their bytes. One message
    may be longer."""

    settings_bytes_max: int = 128 << 10
    """Bytes of a client's settings, which are kept as long as its stream."""

    connection_streams_max: int = 1_024
    """Calls and streams of one connection; further ones wait in the client."""
    connections_max: int = 4_096

    handshakes_max: int = 256
    """With permissive TLS, connections whose first byte or handshake has not come yet."""

    bytes_max: int = 64 << 20
    """Bytes of the requests in progress; above that further ones are refused as busy. Sends count
    after decompression, and with 112 bytes for each property; other requests 24 times: decoded they
    may take so much."""

    receive_bytes_max: int = 40 << 20
    """Of these bytes, those of receives and pulls, which may wait with long filters; above that
    further ones are refused as busy. The others are left for sends."""

    unread_max: int = 256 << 20
    """Bytes of answers, and of commands in streams, that clients have not read, of all connections.
    A call whose answer may be large is refused as busy if 8 MiB more would exceed it, and no larger
    command is sent. An answer is never refused once the work is done."""

    unread_each: int = 4 << 10
    """The part of each answer that is not counted, so that small ones need no counting."""

    inflated_size: int = 15 << 20
    """Bytes of a body after decompression, as many as for the largest plain one: an answer with one
    message is forwarded in one frame."""

    held_sends_max: int = 1_024
    """Of these calls, sends of clients beyond a quota; further ones are refused as busy."""
    held_bytes_max: int = 16 << 20
    """Of these bytes, those of such sends."""

    metadata_max: int = 16 << 10
    """Bytes of a call's metadata."""
    idle_seconds: float = 120.0
    """A connection without a call or a stream is closed after this time."""

    ping_seconds: float = 30.0
    """A connection without a byte for this time is pinged, and closed if no answer comes in half
    the time."""

    name_size_max: int = 512
    """Characters of a message id, and of a client id."""

    message_group_size_max: int = 64
    """RocketMQ's ``maxMessageGroupSize``."""
    recovery_seconds_max: int = 7 * 86_400
    """The longest time until the first check-back of a transaction."""

    batch_max: int = 1_024
    """Messages in one send, or handles in one acknowledgement."""
    long_poll_seconds: float = 20.0
    """How long a push consumer is told to wait for messages."""

    receive_max: int = 32
    """Messages that a push consumer is told to request at a time."""

    renewed_seconds: float = 60.0
    """The invisible time of a message that is renewed while its consumer works."""

    renewed_seconds_max: float = 3 * 3600.0
    """The longest time of such renewals, as in RocketMQ's proxy."""

    routes_max: int = 1_024
    """Cached routes of other broker groups."""

    route_seconds: float = 1.0
    """How long they are cached."""
    nameserver_seconds: float = 1.0
    """How long a NameServer may take to answer."""


GRPC = GrpcLimits()
