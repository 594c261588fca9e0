"""Where records lie that follow each other, found without decoding them."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TypeAlias

from store.message.record import RECORD_FIXED_SIZE
from store.message.twins import compiled_or

PLACE = Struct("=qqqqii")
"""A record: queue offset, start, start of the body, end of the body, SYSFLAG, BODYCRC."""

_BOUNDS = Struct(">i4xi8xq8xi44xi")
"""Size, BODYCRC, queue offset, SYSFLAG and body size of a record with IPv4 hosts, to byte 88."""

_HOSTS_V6 = 0x30
_V6_GROWTH = 12
"""The bytes that an IPv6 host is longer."""

Find: TypeAlias = Callable[[bytes], tuple[bytes, int]]


def find_records_in_python(data: bytes, /) -> tuple[bytes, int]:
    """The places of the records with which ``data`` begins, each as :data:`PLACE`, and the byte
    behind the last one. What follows there is no record, or is cut short.

    Sizes are checked, so that each body lies within its record and each record within ``data``;
    nothing else is.
    """
    places: list[bytes] = []
    add, pack, unpack, head_size = places.append, PLACE.pack, _BOUNDS.unpack_from, _BOUNDS.size
    start, total = 0, len(data)
    last_start = total - RECORD_FIXED_SIZE
    while start <= last_start:
        size, body_crc, queue_offset, sys_flag, body_size = unpack(data, start)
        body_start = start + head_size
        if sys_flag & _HOSTS_V6:
            body_start += _V6_GROWTH * (sys_flag & _HOSTS_V6).bit_count()
            body_size = int.from_bytes(data[body_start - 4 : body_start], "big", signed=True)
        body_end = body_start + body_size
        if not body_start <= body_end < start + size <= total:
            break
        add(pack(queue_offset, start, body_start, body_end, sys_flag, body_crc))
        start += size
    return b"".join(places), start


def _sample(find: Find) -> object:
    record = bytearray(RECORD_FIXED_SIZE + 24)
    record[0:4], record[8:12] = len(record).to_bytes(4, "big"), b"\xfecrc"
    record[20:28], record[36:40] = bytes(range(8)), (0x31).to_bytes(4, "big")
    return find(bytes(record) * 2 + bytes(100))


find_records = compiled_or(find_records_in_python, "find_records", _sample)
