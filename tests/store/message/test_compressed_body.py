"""Bodies that producers compress: both ways, with what other libraries write, and refused."""

from __future__ import annotations

import tracemalloc
import zlib
from random import Random

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message.compressed_body import CompressionType, compress_body, decompress_body

LIMIT = 1 << 20
TEXT = b"".join(b"order %d of customer %d\n" % (n, n * 7919 % 1000) for n in range(2000))
SYS_FLAGS = {CompressionType.ZLIB: 0x001, CompressionType.LZ4: 0x101, CompressionType.ZSTD: 0x201}


@pytest.mark.parametrize("kind", CompressionType)
@given(part=st.binary(max_size=3000), times=st.integers(1, 30))
def test_what_is_compressed_comes_back(kind: CompressionType, part: bytes, times: int) -> None:
    body = part * times
    sent, sys_flag = compress_body(body, kind)
    assert len(sent) <= len(body)
    if sys_flag:
        assert sys_flag == SYS_FLAGS[kind]
        assert decompress_body(sent, sys_flag, LIMIT) == body
    else:
        assert sent is body


@pytest.mark.parametrize("kind", CompressionType)
def test_text_shrinks_to_a_third_at_least(kind: CompressionType) -> None:
    sent, sys_flag = compress_body(TEXT, kind)
    assert sys_flag == SYS_FLAGS[kind]
    assert len(sent) < len(TEXT) / 3


@pytest.mark.parametrize("kind", CompressionType)
@pytest.mark.parametrize("size", [5000, 262144])
def test_random_bytes_are_sent_as_they_are(kind: CompressionType, size: int) -> None:
    body = Random(size).randbytes(size)
    assert compress_body(body, kind) == (body, 0)


def test_zlib_is_what_every_client_reads() -> None:
    sent, _ = compress_body(TEXT, CompressionType.ZLIB)
    assert zlib.decompress(sent) == TEXT


@pytest.mark.parametrize("sys_flag", [0x001, 0x301])
def test_zlib_of_other_clients_is_read(sys_flag: int) -> None:
    assert decompress_body(zlib.compress(TEXT, 5), sys_flag, LIMIT) == TEXT


def test_lz4_in_many_blocks_with_checksums_is_read_as_java_writes_it() -> None:
    packed = lz4.frame.compress(
        TEXT * 10, block_size=lz4.frame.BLOCKSIZE_MAX64KB, content_checksum=True, block_linked=False
    )
    assert decompress_body(packed, 0x101, LIMIT) == TEXT * 10


@pytest.mark.parametrize("kind", CompressionType)
def test_what_is_cut_short_is_refused_wherever_it_is_cut(kind: CompressionType) -> None:
    sent, sys_flag = compress_body(TEXT[:5000], kind)
    for end in range(len(sent)):
        with pytest.raises(ValueError, match="a body cannot be decompressed: "):
            decompress_body(sent[:end], sys_flag, LIMIT)


@pytest.mark.parametrize("kind", CompressionType)
@given(body=st.binary(max_size=300))
def test_nonsense_is_refused(kind: CompressionType, body: bytes) -> None:
    with pytest.raises(ValueError, match="a body "):
        decompress_body(b"\xff" + body, SYS_FLAGS[kind], LIMIT)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_grows_past_the_limit_is_refused_without_the_memory(
    kind: CompressionType,
) -> None:
    sent, sys_flag = compress_body(bytes(64 << 20), kind)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="decompresses to more than 1048576 bytes"):
            decompress_body(sent, sys_flag, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    whole, sys_flag = compress_body(bytes(LIMIT), kind)
    assert decompress_body(whole, sys_flag, LIMIT) == bytes(LIMIT)


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x701])
def test_other_types_are_named(sys_flag: int) -> None:
    with pytest.raises(ValueError, match=f"type 0x{sys_flag & 0x700:x} is not supported"):
        decompress_body(b"", sys_flag, LIMIT)
