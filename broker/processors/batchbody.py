"""The body of a batch request (320): messages of one topic, back to back.

Each, big-endian::

    i32 total size, i32 magic (0), i32 CRC (0), i32 flag, i32 body size, body,
    i16 properties size, properties
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from broker.remoting.codes import ResponseCode
from broker.remoting.errors import RequestError

_START = Struct(">iiiii")
_I16 = Struct(">h")
_FIXED_SIZE = _START.size + _I16.size


def batch_messages(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(flag, body, properties) of each message.

    Raises :class:`~broker.remoting.errors.RequestError` (code 13) where the sizes contradict each
    other; what was yielded before then must be given up too.
    """
    unpack_start = _START.unpack_from
    size = len(data)
    start = 0
    while start < size:
        if size - start < _FIXED_SIZE:
            raise _illegal(start, f"{size - start} bytes are left, a message has {_FIXED_SIZE}")
        total, _magic, _crc, flag, body_size = unpack_start(data, start)
        end = start + total
        body_start = start + 20
        body_end = body_start + body_size
        properties_start = body_end + 2
        if not (body_size >= 0 and properties_start <= end <= size):
            raise _illegal(start, f"total {total} with a body of {body_size} bytes cannot be right")
        # Read as unsigned, and without a call: a negative size contradicts the total all the same.
        if properties_start + (data[body_end] << 8 | data[body_end + 1]) != end:
            (properties_size,) = _I16.unpack_from(data, body_end)
            raise _illegal(start, f"total {total} with {properties_size} bytes of properties")
        yield flag, data[body_start:body_end], data[properties_start:end]
        start = end


def _illegal(start: int, what: str) -> RequestError:
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, f"batch, byte {start}: {what}")
