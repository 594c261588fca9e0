"""Reading stdin: lines as they are, from whatever it is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker.cli.terminal.line_reader import CHUNK_BYTES, LineReader
from broker.command_error import CommandError


async def read_all(reader: LineReader) -> list[bytes]:
    lines: list[bytes] = []
    while piece := await reader.read():
        lines += piece
    return lines


def opened(path: Path, content: bytes) -> int:
    path.write_bytes(content)
    return os.open(path, os.O_RDONLY)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\xff\x00\r\n\x85\n", [b"\xff\x00\r", b"\x85"]),
    ],
)
async def test_lines_are_split_at_newlines_alone(
    tmp_path: Path, content: bytes, lines: list[bytes]
) -> None:
    fd = opened(tmp_path / "file", content)
    assert await read_all(LineReader(fd, 100)) == lines
    os.close(fd)


async def test_a_line_may_span_any_number_of_pieces(tmp_path: Path) -> None:
    lines = [b"x" * (3 * CHUNK_BYTES), b"y", b"z" * CHUNK_BYTES]
    fd = opened(tmp_path / "file", b"\n".join(lines))
    reader = LineReader(fd, 4 * CHUNK_BYTES)
    assert await read_all(reader) == lines
    assert reader.count == 3
    os.close(fd)


async def test_a_pipe_gives_lines_when_they_come() -> None:
    read_end, write_end = os.pipe()
    reader = LineReader(read_end, 100)
    reading = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    assert not reading.done()
    os.write(write_end, b"one\ntw")
    assert await reading == [b"one"]
    os.write(write_end, b"o\n")
    assert await reader.read() == [b"two"]
    os.close(write_end)
    assert await reader.read() == []
    os.close(read_end)


async def test_the_null_device_has_no_lines() -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    assert await read_all(LineReader(fd, 100)) == []
    os.close(fd)


async def test_a_line_that_is_too_long_is_named(tmp_path: Path) -> None:
    limit = 2 * CHUNK_BYTES
    fd = opened(tmp_path / "file", b"a\nb\n" + b"x" * (4 * CHUNK_BYTES))
    reader = LineReader(fd, limit)
    assert await reader.read() == [b"a", b"b"]
    with pytest.raises(CommandError, match=f"line 3 is longer than {limit} bytes"):
        await reader.read()
    os.close(fd)


async def test_a_line_that_ends_a_little_too_late_is_named(tmp_path: Path) -> None:
    limit = 2 * CHUNK_BYTES
    fd = opened(tmp_path / "file", b"a\n" + b"x" * limit + b"\n" + b"y" * (limit + 1) + b"\nb\n")
    reader = LineReader(fd, limit)
    assert await reader.read() == [b"a"]
    assert await reader.read() == [b"x" * limit]
    with pytest.raises(CommandError, match=f"line 3 is longer than {limit} bytes"):
        await reader.read()
    os.close(fd)
