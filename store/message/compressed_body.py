"""Bodies that producers compress: RocketMQ's zlib, as the SYSFLAG of a record says.

Bit 0x1 of SYSFLAG: the body is compressed. Bits 0x700: how; 0x000 and 0x300 are zlib.
"""

from __future__ import annotations

import zlib

from store.io.filesystem import Bytes

SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_COMPRESSION_KIND = 0x700
COMPRESSIONS_ZLIB = (0x000, 0x300)


def inflate_body(body: Bytes, sys_flag: int, size_max: int) -> bytes:
    """A compressed body as it was given to the producer, of ``size_max`` bytes at most.

    Raises ``ValueError`` saying why it cannot be had.
    """
    kind = sys_flag & SYS_FLAG_COMPRESSION_KIND
    if kind not in COMPRESSIONS_ZLIB:
        raise ValueError(f"compression of kind 0x{kind:x} is not supported")
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(body, size_max)
    except zlib.error as error:
        raise ValueError(f"a body cannot be inflated: {error}") from None
    if inflater.unconsumed_tail:
        raise ValueError(f"a body inflates to more than {size_max} bytes")
    if not inflater.eof:
        raise ValueError("a body cannot be inflated: it is cut short")
    return whole
