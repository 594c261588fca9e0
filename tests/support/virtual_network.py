"""The simulator's event loop with a network in memory: asyncio code runs in it unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simulator.engine.event_loop import VirtualLoop

T = TypeVar("T")
Factory = Callable[[], asyncio.BaseProtocol]


class MemoryTransport(asyncio.Transport):
    """One end of a connection. What is written arrives in a later turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        super().__init__({"peername": (host, port)})
        self._loop = loop
        self.protocol: asyncio.Protocol
        self.peer: MemoryTransport
        self.writes: list[bytes] = []
        self._queue = bytearray()
        self._high = 65_536
        self._paused_writing = False
        self.reading = True
        self._closing = False
        self._lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self.writes.append(bytes(data))
        self._queue += data
        if len(self._queue) > self._high and not self._paused_writing:
            self._paused_writing = True
            self.protocol.pause_writing()
        self._loop.call_soon(self._pump)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 65_536

    def get_write_buffer_size(self) -> int:
        return len(self._queue)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self._loop.call_soon(self.peer._pump)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._pump)

    def abort(self) -> None:
        self._closing = True
        self._queue.clear()
        self._loop.call_soon(self._lose)

    def _pump(self) -> None:
        if self._queue and self.peer.reading and not self.peer._lost:
            data = bytes(self._queue)
            self._queue.clear()
            if self._paused_writing:
                self._paused_writing = False
                self.protocol.resume_writing()
            self.peer.protocol.data_received(data)
        if self._closing and not self._queue and self.peer.reading:  # else the end is not read
            self._lose()

    def _lose(self) -> None:
        for end in (self, self.peer):
            end._closing = True
            if not end._lost:
                end._lost = True
                end._queue.clear()
                end.protocol.connection_lost(None)


class _Server:
    def __init__(self, loop: NetworkedLoop, port: int) -> None:
        self._loop = loop
        self._port = port

    def close(self) -> None:
        self._loop.listening.pop(self._port, None)


class NetworkedLoop(VirtualLoop):
    """A loop with connections between its servers and clients. Other addresses refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0  # as on a machine that has run for some time
        self.listening: dict[int, Factory] = {}
        self.unreachable: set[int] = set()
        """Ports to which a connection attempt hangs."""
        self.untold: set[int] = set()
        """Ports that accept a connection, but do not report it to the caller."""
        self._port = 40_000

    def run_in_executor(  # type: ignore[override]  # nobody gives an executor
        self, executor: None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Does the work at once, because virtual time does not wait for a thread."""
        del executor
        done: asyncio.Future[T] = self.create_future()
        done.set_result(func(*args))
        return done

    def stall(self, seconds: float) -> None:
        """Lets the present turn of the loop take this long."""
        self.now += seconds

    # Only these of asyncio's arguments are used.
    async def create_server(  # type: ignore[override]  # of its overloads one is used
        self, factory: Factory, host: str, port: int, *, backlog: int
    ) -> _Server:
        assert backlog > 0
        self.listening[port] = factory
        return _Server(self, port)

    async def create_connection(  # type: ignore[override]  # of its overloads one is used
        self, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if port in self.unreachable:
            await self.create_future()
        if port not in self.listening:
            raise ConnectionRefusedError(f"nobody listens on {port}")
        transport, protocol = self.join(factory(), self.listening[port](), port)
        if port in self.untold:
            try:
                await self.create_future()
            finally:
                transport.close()  # as asyncio does if the caller was cancelled
        return transport, protocol

    def join(
        self, client: asyncio.BaseProtocol, server: asyncio.BaseProtocol, port: int = 10911
    ) -> tuple[MemoryTransport, asyncio.BaseProtocol]:
        """Connects two protocols; the client's transport and protocol."""
        self._port += 1
        near = MemoryTransport(self, "10.0.0.1", port)
        far = MemoryTransport(self, "10.0.0.2", self._port)
        near.peer, far.peer = far, near
        for transport, protocol in ((near, client), (far, server)):
            assert isinstance(protocol, asyncio.Protocol)
            transport.protocol = protocol
            protocol.connection_made(transport)
        return near, client


def run_in_virtual_time(scenario: Callable[[NetworkedLoop], Coroutine[Any, Any, T]]) -> T:
    """Runs a scenario in a new loop, for examples of a property and for measurements."""
    loop = NetworkedLoop()
    try:
        return loop.run_until_complete(scenario(loop))
    finally:
        loop.close()


async def turns(count: int = 5) -> None:
    """Runs turns of the loop. No time passes."""
    for _ in range(count):
        await asyncio.sleep(0)
