"""One message as RocketMQ stores it: record version 1, big-endian.

::

    byte  type       field
       0  i32        TOTALSIZE, this field included
       4  i32        MAGICCODE 0xDAA320A7
       8  i32        BODYCRC: CRC-32 (zlib) of the body as stored, masked with 0x7FFFFFFF
      12  i32        QUEUEID
      16  i32        FLAG
      20  i64        QUEUEOFFSET
      28  i64        PHYSICALOFFSET: position of this record in the commit log
      36  i32        SYSFLAG
      40  i64        BORNTIMESTAMP, ms
      48  8 bytes    BORNHOST: IPv4 and port as i32 (20 bytes with SYSFLAG 0x10)
      56  i64        STORETIMESTAMP, ms
      64  8 bytes    STOREHOST (20 bytes with SYSFLAG 0x20)
      72  i32        RECONSUMETIMES
      76  i64        PREPAREDTRANSACTIONOFFSET
      84  i32        length of the body, the body
          i8         length of the topic, the topic
          i16        length of the properties, the properties

This broker writes IPv4 hosts only, and reads both kinds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from crc32c import crc32c
from isal.isal_zlib import crc32

from store.errors import CorruptRecordError
from store.io.filesystem import Bytes
from store.message.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties, find_property
from store.message.tags_code import tags_code

RECORD_MAGIC = 0xDAA320A7 - (1 << 32)
RECORD_FIXED_SIZE = 91
TOPIC_BYTES_MAX = 127
PROPERTIES_BYTES_MAX = 32767

# From TOTALSIZE to the length of the body; hosts are 8 bytes each.
HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")
# The same bytes in fewer fields: BORN and RECONSUMED come from the message, STORED from its entry.
PENDING_HEAD = struct.Struct(">iiiiiqq20s16s12si")
BORN = struct.Struct(">iq8s")
STORED = struct.Struct(">q8s")
RECONSUMED = struct.Struct(">iq")
RECONSUME_TIMES = struct.Struct(">i")
RECONSUME_TIMES_AT = 72
"""Format: where the attempts of a record are."""
NEVER_RECONSUMED = RECONSUMED.pack(0, 0)
_PREFIX = struct.Struct(">iiiiiqqiq")
_TAIL = struct.Struct(">iqi")
_TIMESTAMP = struct.Struct(">q")
_PLACE = struct.Struct(">ii4xi4xqq")
_BODY_SIZE = struct.Struct(">i")
_BODY_SIZE_AT = HEAD.size - _BODY_SIZE.size
_LENGTHS_MAX = 0xFF + 0xFFFF
"""Format: bytes of topic and properties that their lengths can state."""
_BORN_V6 = 0x10
_STORE_V6 = 0x20
V6_HOSTS = _BORN_V6 | _STORE_V6


class PendingMessage(NamedTuple):
    """A message with everything that does not depend on its position in the log."""

    size: int
    """Bytes of its record."""

    body: Bytes
    properties: bytes
    flag: int
    born: bytes
    """SYSFLAG, BORNTIMESTAMP and BORNHOST as in the record."""

    tried: bytes
    """RECONSUMETIMES and PREPAREDTRANSACTIONOFFSET as in the record."""

    body_crc: int
    tags_code: int
    key_hashes: tuple[int, ...]


@lru_cache(maxsize=65536)
def key_prefix(topic: str) -> int:
    """The CRC32C of ``topic#``, with which the hash of each key of the topic begins."""
    return crc32c(b"%b#" % topic.encode())


def key_hash(topic: str, key: bytes) -> int:
    """The hash of a key in the key index: CRC32C of ``topic#key``."""
    return crc32c(key, key_prefix(topic))


def derive(prefix: int, properties: bytes) -> tuple[int, tuple[int, ...]]:
    """Tags code and key hashes of a message: of its unique key first, then of each of its keys.

    ``prefix`` is the :func:`key_prefix` of its topic.
    """
    unique = find_property(properties, UNIQUE_KEY)
    code, words = tag_and_keys(properties)
    if unique:
        words = (unique, *words)
    return code, tuple([crc32c(word, prefix) for word in words])


def tag_and_keys(properties: bytes) -> tuple[int, tuple[bytes, ...]]:
    """The tags code (0 without a tag), and the keys."""
    tag = find_property(properties, TAGS)
    keys = find_property(properties, KEYS)
    return (
        tags_code(tag.decode(errors="replace")) if tag else 0,
        tuple(keys.split()) if keys else (),
    )


def make_pending_message(
    topic: str,
    body: Bytes,
    properties: bytes,
    *,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int,
    born_host: bytes,
    reconsume_times: int = 0,
    prepared_position: int = 0,
) -> PendingMessage:
    """Computes checksum, tags code and key hashes. The leader does this once for each message.

    ``born_host`` is 4 bytes of IPv4 and the port as i32. The caller checks the limits.
    """
    code, hashes = derive(key_prefix(topic), properties) if properties else (0, ())
    return PendingMessage(
        record_size(topic, len(body), len(properties)),
        body,
        properties,
        flag,
        BORN.pack(sys_flag, born_timestamp, born_host),
        RECONSUMED.pack(reconsume_times, prepared_position),
        crc32(body) & 0x7FFFFFFF,
        code,
        hashes,
    )


def record_size(topic: str, body_size: int, properties_size: int) -> int:
    """Bytes of a record with IPv4 hosts."""
    return RECORD_FIXED_SIZE + len(topic.encode()) + body_size + properties_size


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A decoded record. Times are in ms, hosts are as stored."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    position: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_position: int
    body: bytes = field(repr=False)
    topic: str
    properties: bytes

    @property
    def property_map(self) -> dict[str, str]:
        """The properties as a mapping."""
        return decode_properties(self.properties)

    @property
    def offset_message_id(self) -> str:
        """The id that brokers make: the host that stored the message, and the position."""
        return f"{self.store_host.hex().upper()}{self.position:016X}"


def decode_record(buffer: Bytes, offset: int = 0) -> MessageRecord:
    """The record at ``offset``. Raises :class:`CorruptRecordError` with the reason."""
    view = memoryview(buffer)[offset:]
    try:
        return _decode(view)
    except struct.error as error:
        raise CorruptRecordError(f"record at byte {offset} is cut short: {error}") from None
    except CorruptRecordError as error:
        raise CorruptRecordError(f"record at byte {offset}: {error}") from None


def _decode(view: memoryview) -> MessageRecord:
    size, magic, crc, queue_id, flag, queue_offset, position, sys_flag, born = _PREFIX.unpack_from(
        view
    )
    if magic != RECORD_MAGIC:
        raise _not_magic(magic)
    if not RECORD_FIXED_SIZE <= size <= len(view):
        raise CorruptRecordError(f"size {size} does not fit the {len(view)} bytes there are")
    view = view[:size]
    place = _PREFIX.size
    born_end = place + (20 if sys_flag & _BORN_V6 else 8)
    (store_timestamp,) = _TIMESTAMP.unpack_from(view, born_end)
    host_start = born_end + _TIMESTAMP.size
    host_end = host_start + (20 if sys_flag & _STORE_V6 else 8)
    reconsume, prepared, body_size = _TAIL.unpack_from(view, host_end)
    body_start = host_end + _TAIL.size
    topic_start = body_start + body_size + 1
    if body_size < 0 or topic_start > size:
        raise CorruptRecordError(f"a body of {body_size} bytes leaves the record")
    body = bytes(view[body_start : topic_start - 1])
    if crc32(body) & 0x7FFFFFFF != crc:
        raise CorruptRecordError(
            f"body CRC {crc32(body) & 0x7FFFFFFF:08x} is not the stated {crc:08x}"
        )
    properties_start = topic_start + view[topic_start - 1] + 2
    if properties_start > size:
        raise CorruptRecordError("the topic leaves the record")
    stated = int.from_bytes(view[properties_start - 2 : properties_start], "big")
    if properties_start + stated != size:
        raise CorruptRecordError(f"{stated} bytes of properties do not end the record")
    try:
        topic = str(view[topic_start : properties_start - 2], "utf-8")
    except UnicodeDecodeError:
        raise CorruptRecordError("the topic is not UTF-8") from None
    return MessageRecord(
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        position,
        sys_flag,
        born,
        bytes(view[place:born_end]),
        store_timestamp,
        bytes(view[host_start:host_end]),
        reconsume,
        prepared,
        body,
        topic,
        bytes(view[properties_start:]),
    )


def stated_size(head: Bytes) -> int:
    """The size of the record that begins with ``head``, which need not be whole.

    No memory is to be taken for a size that the record does not state twice. So this raises
    :class:`CorruptRecordError` unless the size fits the length of the body, but for the few bytes
    that topic and properties can have.
    """
    try:
        size, magic, _crc, _queue, _flag, _offset, _position, sys_flag, _ = _PREFIX.unpack_from(
            head
        )
        more = 12 * (bool(sys_flag & _BORN_V6) + bool(sys_flag & _STORE_V6))
        (body_size,) = _BODY_SIZE.unpack_from(head, _BODY_SIZE_AT + more)
    except struct.error:
        raise CorruptRecordError("record is cut short") from None
    if magic != RECORD_MAGIC:
        raise _not_magic(magic)
    if body_size < 0 or not 0 <= size - body_size - more - RECORD_FIXED_SIZE <= _LENGTHS_MAX:
        raise CorruptRecordError(f"size {size} does not fit a body of {body_size} bytes")
    return int(size)


def _not_magic(magic: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"magic {magic & 0xFFFFFFFF:08x} is not {RECORD_MAGIC & 0xFFFFFFFF:08x}"
    )


def is_record_of(
    buffer: Bytes, start: int, *, size: int, queue_id: int, queue_offset: int, position: int
) -> bool:
    """Whether the record at ``start`` has the values that its ConsumeQueue row states.

    ``buffer`` must have :data:`RECORD_FIXED_SIZE` bytes from there on.
    """
    stated = size, RECORD_MAGIC, queue_id, queue_offset, position
    return _PLACE.unpack_from(buffer, start) == stated


def record_bounds(buffer: Bytes) -> list[tuple[int, int]]:
    """Start and end of each record in ``buffer``, which holds records back to back. Reads no body.

    Raises :class:`CorruptRecordError` for a wrong size or magic.
    """
    bounds: list[tuple[int, int]] = []
    start = 0
    total = len(buffer)
    unpack = struct.Struct(">ii").unpack_from
    while start < total:
        if total - start < RECORD_FIXED_SIZE:
            raise CorruptRecordError(f"record at byte {start} is cut short")
        size, magic = unpack(buffer, start)
        end = start + size
        if magic != RECORD_MAGIC or size < RECORD_FIXED_SIZE or end > total:
            raise CorruptRecordError(f"record at byte {start}: magic or size {size} is wrong")
        bounds.append((start, end))
        start = end
    return bounds


def iter_records(buffer: Bytes) -> Iterator[MessageRecord]:
    """The records of ``buffer``, which holds them back to back; each is checked."""
    for start, _ in record_bounds(buffer):
        yield decode_record(buffer, start)
