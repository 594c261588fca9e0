"""Messages of a pull: views of the answer, decoded on access.

A program that needs only bodies unpacks six numbers of each record and leaves the rest undecoded.
The layout is that of the stored record (``store/message/record.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

from isal.isal_zlib import crc32

from broker.client.errors import UndecodableBodyError
from broker.client.message import (
    PROPERTY_KEYS,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    Bytes,
    MessageQueue,
)
from broker.limits import BODY_LIMITS
from broker.remoting.protocol.addresses import host_text
from store.errors import CorruptRecordError
from store.message.compressed_body import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSION_TYPE,
    decompress_body,
)
from store.message.properties import TAGS, decode_properties, find_property
from store.message.record import MessageRecord, decode_record
from store.message.record_places import PLACE, find_records

_I32 = Struct(">i")

TagFilter: TypeAlias = frozenset[bytes] | None
"""The tags that match; None: all messages."""


class ReceivedMessage:
    """One message of a queue. Everything except its queue and offset is decoded on first access,
    which raises :class:`~store.errors.CorruptRecordError` for a damaged record.
    """

    __slots__ = ("_buffer", "_record", "_start", "queue", "queue_offset")

    def __init__(
        self, queue: MessageQueue, queue_offset: int, buffer: memoryview, start: int
    ) -> None:
        self.queue = queue
        self.queue_offset = queue_offset
        self._buffer = buffer
        self._start = start
        self._record: MessageRecord | None = None

    @property
    def record(self) -> MessageRecord:
        """The stored record; the checksum of the body is verified."""
        if self._record is None:
            self._record = decode_record(self._buffer, self._start)
        return self._record

    @property
    def body(self) -> bytes:
        """The body as it was given to the producer.

        Raises :class:`UndecodableBodyError` for an unknown compression.
        """
        record = self.record
        if record.sys_flag & SYS_FLAG_COMPRESSED:
            return decompressed(record.body, record.sys_flag)
        return record.body

    def undecoded(self) -> ReceivedMessage:
        """The same message; its body stays as stored, compressed or not."""
        return _Undecoded(self.queue, self.queue_offset, self._buffer, self._start)

    @property
    def raw_body(self) -> bytes:
        """The body as stored."""
        return self.record.body

    @property
    def compressed(self) -> int:
        """The bits of SYSFLAG that say how :attr:`raw_body` is compressed; 0: it is not."""
        flags = self.record.sys_flag
        kind = SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_TYPE
        return flags & kind if flags & SYS_FLAG_COMPRESSED else 0

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def original_topic(self) -> str:
        """The topic to which it was sent, also if it comes from the retry topic."""
        return self.properties.get(PROPERTY_RETRY_TOPIC) or self.topic

    @property
    def message_id(self) -> str:
        """The offset message id: the broker's address and the position."""
        return self.record.offset_message_id

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.record.properties)

    @property
    def unique_key(self) -> str:
        """The producer's UNIQ_KEY; empty if there is none."""
        return self.properties.get(PROPERTY_UNIQUE_KEY, "")

    @property
    def tags(self) -> str:
        return self.properties.get(PROPERTY_TAGS, "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get(PROPERTY_KEYS, "").split()

    @property
    def born_timestamp(self) -> int:
        """By the producer's clock, in milliseconds."""
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """By the leader's clock, in milliseconds."""
        return self.record.store_timestamp

    @property
    def born_host(self) -> str:
        """The producer's address as ``host:port``; an IPv6 address has brackets."""
        return host_text(self.record.born_host)

    @property
    def reconsume_times(self) -> int:
        return self.record.reconsume_times


class _Undecoded(ReceivedMessage):
    __slots__ = ()

    @property
    def body(self) -> bytes:
        return self.raw_body


class PulledBatch:
    """The messages of one answer to a pull, of one queue, in order."""

    __slots__ = ("_body", "_places", "next_offset", "queue")

    def __init__(
        self, queue: MessageQueue, body: bytes, next_offset: int, tags: TagFilter = None
    ) -> None:
        """Finds the records in ``body``. Raises :class:`~store.errors.CorruptRecordError`.

        ``tags``: the broker filters by hash codes, so messages with another tag are left out here.
        """
        self.queue = queue
        self._body = body
        self._places, end = find_records(body)
        if end != len(body):
            raise CorruptRecordError(f"byte {end} of {len(body)} of a pull: no record begins here")
        self.next_offset = next_offset
        """The offset of the next pull; filtered messages may lie before it."""
        if tags is not None:
            self._places = b"".join(
                PLACE.pack(*place)
                for place in PLACE.iter_unpack(self._places)
                if _tag(body, start=place[1], topic=place[3]) in tags
            )

    def __len__(self) -> int:
        return len(self._places) // PLACE.size

    def offset_after(self, count: int) -> int:
        """The offset behind the first ``count`` messages."""
        if count >= len(self):
            return self.next_offset
        offset: int = PLACE.unpack_from(self._places, count * PLACE.size)[0]
        return offset

    @property
    def size(self) -> int:
        """The bytes of the batch in memory."""
        return len(self._body)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        queue, view = self.queue, memoryview(self._body)
        for offset, start, *_ in PLACE.iter_unpack(self._places):
            yield ReceivedMessage(queue, offset, view, start)

    def bodies(self, *, verify: bool = True) -> Iterator[Bytes]:
        """The bodies, in order, as views unless they are compressed.

        Much faster than the ``body`` of each message. Raises as :attr:`ReceivedMessage.body`.
        Without ``verify``, checksums are not compared.
        """
        view = memoryview(self._body)
        for queue_offset, _, start, end, sys_flag, body_crc in PLACE.iter_unpack(self._places):
            body = view[start:end]
            if verify and crc32(body) & 0x7FFFFFFF != body_crc:
                raise CorruptRecordError(f"the body CRC of offset {queue_offset} does not match")
            yield decompressed(body, sys_flag) if sys_flag & SYS_FLAG_COMPRESSED else body


def _tag(body: bytes, *, start: int, topic: int) -> bytes:
    """The tag of the record at ``start`` whose topic's length stands at ``topic``."""
    (size,) = _I32.unpack_from(body, start)
    return find_property(body[topic + 1 + body[topic] + 2 : start + size], TAGS) or b""


def decompressed(body: Bytes, sys_flag: int) -> bytes:
    """The decompressed body of a message with this system flag. Raises
    :class:`UndecodableBodyError`."""
    try:
        return decompress_body(body, sys_flag, BODY_LIMITS.inflated_size)
    except ValueError as error:
        raise UndecodableBodyError(str(error)) from None
