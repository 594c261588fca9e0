"""Simulated streams: order, refusals, dead processes, dead machines, cut and healed links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from simulator.engine.event_loop import VirtualLoop
from simulator.engine.peer_network import Network, NetworkFaults
from simulator.engine.process import Process
from simulator.engine.process_loop import ProcessLoop
from simulator.engine.random_streams import Streams
from simulator.engine.tcp_sockets import GIVE_UP_SECONDS, Interface, Sockets

PORT = 9000


class Ear(asyncio.Protocol):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Wire:
    """Two machines, ``a`` that dials and ``b`` that listens."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        streams = Streams(1)
        self.network = Network(self.loop, streams, NetworkFaults())
        self.sockets = Sockets(self.loop, self.network, streams.stream("sockets"))
        self.a, self.b = self.machine("a", "10.0.0.1"), self.machine("b", "10.0.0.2")
        self.ears: list[Ear] = []

    def machine(self, name: str, ip: str) -> Interface:
        process = Process(after=lambda: None, died=lambda: None)
        interface = Interface(self.sockets, process, name, ip)
        ProcessLoop(self.loop, process, interface=interface)
        return interface

    def ear(self) -> Ear:
        self.ears.append(Ear())
        return self.ears[-1]

    async def dial(self) -> Ear:
        assert isinstance(self.b.process.loop, ProcessLoop)
        assert isinstance(self.a.process.loop, ProcessLoop)
        if PORT not in self.b.listening:
            await self.b.process.loop.create_server(self.ear, self.b.ip, PORT, backlog=1)
        dialled: asyncio.Future[Ear] = self.loop.create_future()

        async def dials() -> None:
            assert isinstance(self.a.process.loop, ProcessLoop)
            try:
                _, ear = await self.a.process.loop.create_connection(Ear, self.b.ip, PORT)
            except OSError as error:
                dialled.set_exception(error)
                return
            assert isinstance(ear, Ear)
            dialled.set_result(ear)

        loop = self.a.process.loop
        self.a.process.run(lambda: loop.create_task(dials()) and None)
        return await dialled

    def cut(self) -> None:
        self.network.cut("a", "b", noticed=False)


def run(script: Callable[[Wire], Awaitable[None]]) -> None:
    wire = Wire()

    async def main() -> None:
        await script(wire)

    try:
        wire.loop.run_until_complete(main())
    finally:
        wire.loop.close()


def test_bytes_arrive_in_order_however_they_are_cut() -> None:
    async def script(wire: Wire) -> None:
        near = await wire.dial()
        sent = [bytes((number,)) * (1 + number % 7) for number in range(200)]
        for each in sent:
            near.transport.write(each)
        near.transport.close()
        await asyncio.sleep(1)
        assert wire.ears[0].heard == b"".join(sent)
        assert wire.ears[0].lost == [None]
        assert near.lost == [None]

    run(script)


def test_nobody_listening_is_a_refusal_and_a_dead_process_a_reset() -> None:
    async def script(wire: Wire) -> None:
        near = await wire.dial()
        wire.b.process.end()
        wire.sockets.process_ended(wire.b, power_lost=False)
        await asyncio.sleep(1)
        assert [type(error).__name__ for error in near.lost] == ["ResetSocketError"]
        refused: list[BaseException | None] = []
        loop = wire.a.process.loop
        assert loop is not None
        task = loop.create_task(wire.a.connect(Ear, wire.b.ip, PORT))
        task.add_done_callback(lambda done: refused.append(done.exception()))
        await asyncio.sleep(1)
        assert [type(error) for error in refused] == [ConnectionRefusedError]

    run(script)


def test_a_machine_without_power_says_nothing_until_the_sender_gives_up() -> None:
    async def script(wire: Wire) -> None:
        near = await wire.dial()
        wire.b.process.end()
        wire.sockets.process_ended(wire.b, power_lost=True)
        await asyncio.sleep(60)
        assert near.lost == []
        near.transport.write(b"anybody there?")
        await asyncio.sleep(GIVE_UP_SECONDS - 1)
        assert near.lost == []
        await asyncio.sleep(2)
        assert [type(error) for error in near.lost] == [TimeoutError]

    run(script)


def test_a_machine_that_is_back_knows_nothing_of_old_streams() -> None:
    async def script(wire: Wire) -> None:
        near = await wire.dial()
        wire.b.process.end()
        wire.sockets.process_ended(wire.b, power_lost=True)
        near.transport.write(b"anybody there?")
        await asyncio.sleep(1)
        wire.machine("b", "10.0.0.2")
        await asyncio.sleep(1)
        assert [type(error).__name__ for error in near.lost] == ["ResetSocketError"]

    run(script)


def test_a_cut_link_holds_bytes_up_until_it_is_healed() -> None:
    async def script(wire: Wire) -> None:
        near = await wire.dial()
        wire.cut()
        near.transport.write(b"one")
        near.transport.write(b"two")
        wire.ears[0].transport.write(b"the other way")
        await asyncio.sleep(2)
        assert (wire.ears[0].heard, near.heard) == (b"", b"the other way")
        wire.network.heal()
        await asyncio.sleep(1)
        assert wire.ears[0].heard == b"onetwo"

    run(script)


def test_what_was_written_to_a_late_stream_is_under_way_when_all_is_healed() -> None:
    async def script(wire: Wire) -> None:
        near = await wire.dial()
        wire.network.late["a", "b"] = 2.0
        near.transport.write(b"one")
        wire.network.heal()
        near.transport.write(b"two")
        await asyncio.sleep(1.9)
        assert (wire.ears[0].heard, wire.network.is_late("a", "b")) == (b"", True)
        await asyncio.sleep(0.2)
        assert (wire.ears[0].heard, wire.network.is_late("a", "b")) == (b"onetwo", False)
        assert not wire.network.is_late("b", "a")

    run(script)


def test_dialling_through_a_cut_link_waits_until_it_is_healed() -> None:
    async def script(wire: Wire) -> None:
        await wire.dial()
        wire.cut()
        dialling = asyncio.ensure_future(wire.dial())
        await asyncio.sleep(5)
        assert not dialling.done()
        wire.network.heal()
        await asyncio.sleep(2)
        assert dialling.done()

    run(script)
