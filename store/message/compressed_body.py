"""Compressed bodies, as the SYSFLAG of a record marks them (RocketMQ's MessageSysFlag).

Bit 0x1 of SYSFLAG: the body is compressed. Bits 0x700 are the type::

    0x000  zlib, as clients older than 4.9.4 and 5.0 write it
    0x100  LZ4, in frames
    0x200  Zstandard
    0x300  zlib
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum

import lz4.frame
from isal import isal_zlib
from isal.igzip_lib import IsalError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from store.io.filesystem import Bytes

SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_COMPRESSION_TYPE = 0x700

_SAMPLE_PARTS = 4
_SAMPLE_PART_SIZE = 512
_SAMPLE_RATIO_MAX = 0.95
"""If a sample keeps more than this share of its size, its body is not compressed."""


class CompressionType(StrEnum):
    """How a producer compresses (``rocketmq.message.compressType``)."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


_SYS_FLAGS = {CompressionType.ZLIB: 0x000, CompressionType.LZ4: 0x100, CompressionType.ZSTD: 0x200}
"""zlib is written as 0x000, because older clients know only that."""


def compress_body(body: Bytes, kind: CompressionType) -> tuple[Bytes, int]:
    """The body to send and its bits of SYSFLAG. It stays as it is if compression saves nothing.

    Four parts of 512 bytes are tried first, because compressing a whole body for nothing costs as
    much as sending it.
    """
    if not _shrinks(body):
        return body, 0
    smaller = _COMPRESS[kind](body)
    if len(smaller) >= len(body):
        return body, 0
    return smaller, SYS_FLAG_COMPRESSED | _SYS_FLAGS[kind]


def decompress_body(body: Bytes, sys_flag: int, size_max: int) -> bytes:
    """The body before its compression, of ``size_max`` bytes at most.

    Raises ``ValueError`` with the reason if it cannot be decompressed.
    """
    kind = sys_flag & SYS_FLAG_COMPRESSION_TYPE
    decompress = _DECOMPRESS.get(kind)
    if decompress is None:
        raise ValueError(f"compression of type 0x{kind:x} is not supported")
    try:
        whole, ended = decompress(body, size_max + 1)
    except _ERRORS as error:
        raise ValueError(f"a body cannot be decompressed: {error}") from None
    if len(whole) > size_max:
        raise ValueError(f"a body decompresses to more than {size_max} bytes")
    if not ended:
        raise ValueError("a body cannot be decompressed: it is cut short")
    return whole


def _shrinks(body: Bytes) -> bool:
    size = len(body)
    if size <= _SAMPLE_PARTS * _SAMPLE_PART_SIZE:
        return True
    step = (size - _SAMPLE_PART_SIZE) // (_SAMPLE_PARTS - 1)
    starts = range(0, step * _SAMPLE_PARTS, step)
    sample = b"".join([body[start : start + _SAMPLE_PART_SIZE] for start in starts])
    return len(isal_zlib.compress(sample, 1)) < _SAMPLE_RATIO_MAX * len(sample)


def _compress_zlib(body: Bytes) -> bytes:
    return isal_zlib.compress(body, 1)


def _decompress_zlib(body: Bytes, size_max: int) -> tuple[bytes, bool]:
    decompressor = isal_zlib.decompressobj()
    return decompressor.decompress(body, size_max), decompressor.eof


def _decompress_lz4(body: Bytes, size_max: int) -> tuple[bytes, bool]:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    return decompressor.decompress(body, size_max), decompressor.eof


def _decompress_zstd(body: Bytes, size_max: int) -> tuple[bytes, bool]:
    decompressor = zstd.ZstdDecompressor(options=_ZSTD_LIMITS)
    return decompressor.decompress(body, size_max), decompressor.eof


_ZSTD_LIMITS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 25}
"""A window of 32 MiB, many times the largest body. A header that claims more gets no memory."""

_ERRORS: tuple[type[Exception], ...] = (IsalError, zstd.ZstdError, RuntimeError)  # type: ignore[assignment]  # isal's stub calls its class an instance
"""What the libraries raise; LZ4's has no error of its own."""

_COMPRESS: dict[CompressionType, Callable[[Bytes], bytes]] = {
    CompressionType.ZLIB: _compress_zlib,
    CompressionType.LZ4: lz4.frame.compress,
    CompressionType.ZSTD: zstd.compress,
}
_DECOMPRESS: dict[int, Callable[[Bytes, int], tuple[bytes, bool]]] = {
    0x000: _decompress_zlib,
    0x100: _decompress_lz4,
    0x200: _decompress_zstd,
    0x300: _decompress_zlib,
}
