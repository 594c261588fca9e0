"""Limits of deliveries."""

from __future__ import annotations

from typing import NamedTuple


class ConsumeLimits(NamedTuple):
    """Limits of deliveries."""

    pull_messages_max: int = 1024

    pull_bytes_max: int = 4 << 20
    """Bytes of the messages of one answer to a consumer. Over HTTP and gRPC, where the broker
    decompresses them, these are the bytes after that. A single message may have more."""

    long_poll_seconds_max: float = 60.0
    """How long a request is held, longer than any client waits."""

    pop_messages_max: int = 32
    """Messages of one receive request, as in RocketMQ."""

    pop_bytes_max: int = 8 << 20
    """Bytes of the messages of one receive request, if there are several: each may have 15 MiB.
    Over gRPC they count as decompressed."""

    pop_invisible_ms_max: int = 12 * 3600 * 1000
    """The longest invisible time, as in RocketMQ's proxy."""

    pop_waiting_rows_max: int = 256
    """Messages of a queue that wait for an earlier one of their message group."""

    pop_handles_max: int = 1024
    """Receipt handles in one request."""

    held_pulls_max: int = 65_536
    """Held pulls; a further one is answered at once without a message."""

    held_expressions_max: int = 8 << 20
    """Characters of the expressions of all held pulls, and as many of what waits by POP; parsed,
    each takes up to 30 bytes."""

    query_messages_max: int = 64
    """RocketMQ's ``maxMsgsNumBatch``."""

    query_bytes_max: int = 8 << 20
    """Bytes of the messages of a query, if there are several: each may have 15 MiB."""

    queue_rows_max: int = 1000
    """Rows of a ConsumeQueue in one answer."""

    expression_depth_max: int = 64
    """The depth of nested parentheses and signs in an SQL92 expression."""

    expression_links_max: int = 200
    """``AND``, ``OR`` and ``=`` in a row, because evaluation nests them. ``IN`` takes lists of
    2,000."""


CONSUME = ConsumeLimits()
