"""Bodies for clients that cannot decompress them, over HTTP and gRPC.

A few hundred bytes of Zstandard may hold 16 MiB. So an answer counts its messages as the client
gets them: it ends before the message with which they have more than ``pull_bytes_max``, and the
next answer begins with that message. One message always fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from broker.limits import BODY_LIMITS, CONSUME
from store.io.filesystem import Bytes
from store.message.compressed_body import SYS_FLAG_COMPRESSED, decompress_body
from store.message.record import MessageRecord, iter_records


class Inflated(NamedTuple):
    """The messages of one answer."""

    messages: list[tuple[MessageRecord, bytes]]
    """Each with its body before the compression."""
    size: int
    """Their bytes."""
    rest_at: int | None
    """The offset at which the next answer begins, if not all messages fit into this one."""


def inflated_body(record: MessageRecord, size_max: int = BODY_LIMITS.inflated_size) -> bytes:
    """The body before its compression; as stored if it cannot be decompressed, or has more than
    ``size_max`` bytes."""
    if record.sys_flag & SYS_FLAG_COMPRESSED:
        with suppress(ValueError):
            return decompress_body(record.body, record.sys_flag, size_max)
    return record.body


def inflated(parts: Iterable[Bytes], size_max: int = BODY_LIMITS.inflated_size) -> Inflated:
    """The messages of ``parts``, as many as fit into an answer. Each part holds records back to
    back; for ``size_max`` see :func:`inflated_body`. Raises
    :class:`~store.errors.CorruptRecordError`."""
    messages: list[tuple[MessageRecord, bytes]] = []
    total = 0
    for part in parts:
        for record in iter_records(part):
            body = inflated_body(record, size_max)
            size = record.size - len(record.body) + len(body)
            if messages and total + size > CONSUME.pull_bytes_max:
                return Inflated(messages, total, record.queue_offset)
            messages.append((record, body))
            total += size
    return Inflated(messages, total, None)
