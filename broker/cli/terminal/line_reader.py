"""Reads lines from a descriptor without a thread, piece by piece."""

from __future__ import annotations

import asyncio
import os
import stat

from broker.command_error import CommandError

CHUNK_BYTES = 256 * 1024


class LineReader:
    """The lines of a descriptor, as bytes, split only at newlines.

    A pipe or a terminal is read once it has bytes; a file always has. Reading available bytes does
    not block. So the mode of the descriptor need not change, which other processes may share.
    """

    def __init__(self, fd: int, line_bytes_max: int) -> None:
        self._fd = fd
        self._line_bytes_max = line_bytes_max
        self._loop = asyncio.get_running_loop()
        self._always_ready = stat.S_ISREG(os.fstat(fd).st_mode)
        self._rest = b""
        self._ended = False
        self.count = 0
        """The number of lines read so far."""

    async def read(self) -> list[bytes]:
        """Waits for lines; returns all complete ones, or an empty list at the end.

        Text after the last newline is a line too. Raises :class:`CommandError` for a line that is
        too long.
        """
        lines: list[bytes] = []
        while not lines and not self._ended:
            await self._ready()
            chunk = os.read(self._fd, CHUNK_BYTES)
            if chunk:
                lines = (self._rest + chunk).split(b"\n")
                self._rest = lines.pop()
            else:
                self._ended = True
                lines = [self._rest] if self._rest else []
                self._rest = b""
            # Of several lines in a piece only the first and the last begin or end outside of it.
            self._check(self.count + 1, lines[0] if lines else b"")
            self._check(self.count + len(lines) + 1, self._rest)
        self.count += len(lines)
        return lines

    def _check(self, number: int, line: bytes) -> None:
        if len(line) > self._line_bytes_max:
            raise CommandError(
                f"line {number} is longer than {self._line_bytes_max} bytes, the limit of a message"
            )

    async def _ready(self) -> None:
        if self._always_ready:
            await asyncio.sleep(0)  # other tasks get a turn between two pieces of a file
            return
        readable: asyncio.Future[None] = self._loop.create_future()
        try:
            self._loop.add_reader(self._fd, _set_done, readable)
        except PermissionError:  # such a file (/dev/null) cannot be waited for: it is always ready
            self._always_ready = True
            return
        try:
            await readable
        finally:
            self._loop.remove_reader(self._fd)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
