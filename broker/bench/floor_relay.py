"""The floor under a replicated log: ``python -m broker.bench.floor_relay FILE [FOLLOWER...]``.

A relay writes incoming bytes to its file, synchronously like the log, and passes them on to its
followers meanwhile. It tells the sender how many bytes a majority has on stable storage. It parses
nothing, and has no messages, elections or readers. So no broker in Python can use less of the
machine for the same bytes.

Bytes go in; numbers of 8 bytes, big-endian, come back: the bytes of this connection that are
durable on a majority of the relay and its followers. The file has its full size before the first
byte comes, and is overwritten from the beginning when it is full: nothing is prepared ahead. The
relay prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop

from dledger.raft.quorum import majority
from dledger.wire.endpoint import Endpoint
from store.io.async_io import AsyncWrites
from store.io.os_filesystem import OsFileSystem

FILE_SIZE = 64 << 20
WRITE_MAX = 512 << 10
"""The largest single write; bytes that come meanwhile go with the next one."""

DURABLE = struct.Struct(">Q")


class DurableCounts:
    """The last number in a stream of numbers."""

    def __init__(self) -> None:
        self._rest = b""

    def last(self, data: bytes) -> int | None:
        """The last complete number; None if ``data`` completes none."""
        data = self._rest + data
        whole = len(data) - len(data) % DURABLE.size
        self._rest = data[whole:]
        count: int | None = DURABLE.unpack_from(data, whole - DURABLE.size)[0] if whole else None
        return count


def _nothing() -> None:
    """The callback before there is a sender."""


class SyncedFile:
    """Appends to one file, one write at a time. A write is durable when it ends."""

    def __init__(self, path: str, size: int = FILE_SIZE) -> None:
        """Creates the file and fills it with zeros. ``size`` is in bytes, a multiple of the block
        size."""
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._writes = AsyncWrites.open(time.monotonic)
        self._file = OsFileSystem(self._writes).open(path, create=True)
        zeros = bytes(min(size, 1 << 20))
        for position in range(0, size, len(zeros)):
            self._file.append_direct(zeros, position)
        self._file.datasync()
        if self._writes is not None:
            self._loop.add_reader(self._writes.fileno(), self._writes.completed)
        self._waiting = bytearray()
        self._writing = b""
        self._position = 0
        self.durable = 0
        self.on_durable: Callable[[], None] = _nothing

    def close(self) -> None:
        if self._writes is not None:
            self._loop.remove_reader(self._writes.fileno())
            self._writes.close()
        self._file.close()

    def append(self, data: bytes) -> None:
        self._waiting += data
        self._next()

    def _next(self) -> None:
        if self._writing or not self._waiting:
            return
        room = min(WRITE_MAX, self._size - self._position)
        self._writing = bytes(self._waiting[:room])
        del self._waiting[:room]
        if not self._file.begin_append(self._writing, self._position, self._ended):
            self._write()

    def _ended(self, error: OSError | None) -> None:
        if error is None:
            self._written()
        elif isinstance(error, BlockingIOError):
            self._write()
        else:
            raise error

    def _write(self) -> None:
        self._file.append_direct(self._writing, self._position)
        self._file.datasync()
        self._loop.call_soon(self._written)

    def _written(self) -> None:
        self.durable += len(self._writing)
        self._position = (self._position + len(self._writing)) % self._size
        self._writing = b""
        self.on_durable()
        self._next()


class Follower(asyncio.Protocol):
    """The leader's side of a connection to a follower."""

    def __init__(self, relay: Relay) -> None:
        self.durable = 0
        self._relay = relay
        self._counts = DurableCounts()

    def data_received(self, data: bytes) -> None:
        count = self._counts.last(data)
        if count is not None:
            self.durable = count
            self._relay.tell()


class Relay(asyncio.Protocol):
    """The connections of senders, one after the other: the next one connects once all bytes of the
    one before are durable."""

    def __init__(self, file: SyncedFile) -> None:
        self._file = file
        file.on_durable = self.tell
        self._sender: asyncio.WriteTransport | None = None
        self._followers: list[tuple[asyncio.WriteTransport, Follower]] = []
        self._received = 0
        self._before = 0
        """The number of bytes of earlier senders."""
        self._told = 0

    async def follow(self, follower: Endpoint) -> None:
        """Connects to a follower."""
        transport, protocol = await asyncio.get_running_loop().create_connection(
            lambda: Follower(self), follower.host, follower.port
        )
        self.add_follower(transport, protocol)

    def add_follower(self, transport: asyncio.WriteTransport, follower: Follower) -> None:
        """Adds a connected follower."""
        self._followers.append((transport, follower))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._sender = cast("asyncio.WriteTransport", transport)
        self._before = self._told = self._received

    def connection_lost(self, _error: Exception | None) -> None:
        self._sender = None

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        for transport, _ in self._followers:
            transport.write(data)
        self._file.append(data)

    def tell(self) -> None:
        """Sends the number of durable bytes, if it has grown."""
        counts = sorted((self._file.durable, *(each.durable for _, each in self._followers)))
        durable = counts[-majority(len(counts))]
        if durable > self._told and self._sender is not None:
            self._told = durable
            self._sender.write(DURABLE.pack(durable - self._before))


async def serve(path: str, followers: list[Endpoint]) -> None:
    """Relays for one sender until standard input ends."""
    loop = asyncio.get_running_loop()
    file = SyncedFile(path)
    relay = Relay(file)
    try:
        for follower in followers:
            await relay.follow(follower)
        server = await loop.create_server(lambda: relay, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.read()
        server.close()
    finally:
        file.close()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], [Endpoint.parse(each) for each in sys.argv[2:]]))
