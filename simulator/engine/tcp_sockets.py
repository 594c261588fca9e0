"""TCP between the processes of a simulated cluster: streams that are slow, cut, reset, or stuck.

A stream keeps its bytes in order and loses none of them while it lives, as TCP does on a bad
network. The sender repeats dropped bytes. So a cut direction holds bytes up until it is healed, or
until the sender's kernel gives up. The kernel closes the sockets of a dead process. A machine
without power says nothing, and its peers notice only when they wait too long.

Chunks are cut anywhere: bytes of one write may be read in pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from random import Random

    from simulator.engine.event_loop import VirtualLoop
    from simulator.engine.peer_network import Network
    from simulator.engine.process import Process

Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]

GIVE_UP_SECONDS = 6.0
"""How long a kernel sends the same bytes again before it reports a timeout."""

DIAL_RETRY_SECONDS = 1.0
"""Between two attempts to reach a machine that does not answer at all."""

SPLIT_SHARE = 0.05
IN_ORDER_SECONDS = 1e-6
WRITE_BUFFER_HIGH = 64 << 10

END = b""
"""Marks the end of a stream, in the place of bytes."""


class ResetSocketError(ConnectionResetError):
    """The other end is gone: the connection is reset."""


class SimulatedSocket(asyncio.Transport):
    """One end of a stream, as the protocol of its process sees it."""

    def __init__(self, interface: Interface, peername: Address) -> None:
        super().__init__({"peername": peername})
        self.interface = interface
        self.protocol: asyncio.Protocol | None = None
        self.peer: SimulatedSocket
        self.lost = False
        self.last_arrival = 0.0
        self.stuck: deque[bytes | Exception] = deque()
        self.stuck_since = -1.0
        self._closing = False
        self._unread: deque[bytes] | None = None
        self.in_flight = 0
        self._high = WRITE_BUFFER_HIGH
        self._low = WRITE_BUFFER_HIGH // 4
        self.writing_paused = False

    # --- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :class:`asyncio.WriteTransport`."""
        if self._closing or not data:
            return
        self.in_flight += len(data)
        self.interface.sockets.transmit(self, bytes(data))
        if self.in_flight > self._high and not self.writing_paused:
            self.writing_paused = True
            self._made().pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See :class:`asyncio.WriteTransport`."""
        self._high = WRITE_BUFFER_HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """See :class:`asyncio.WriteTransport`."""
        return self.in_flight

    def pause_reading(self) -> None:
        """See :class:`asyncio.ReadTransport`."""
        if self._unread is None:
            self._unread = deque()

    def resume_reading(self) -> None:
        """See :class:`asyncio.ReadTransport`."""
        unread, self._unread = self._unread, None
        for data in unread or ():
            self.receive(data)

    def is_closing(self) -> bool:
        """See :class:`asyncio.BaseTransport`."""
        return self._closing

    def close(self) -> None:
        """See :class:`asyncio.BaseTransport`."""
        self._end(END)

    def abort(self) -> None:
        """See :class:`asyncio.WriteTransport`."""
        self._end(ResetSocketError("reset by the peer"))

    def _end(self, last: bytes | Exception) -> None:
        if not self._closing:
            self._closing = True
            self.interface.sockets.transmit(self, last)
            self.interface.run_soon(self.lose, None)

    # --- the network's events, as events of its process

    def receive(self, data: bytes) -> None:
        """Bytes arrive."""
        if self._closing:
            return
        if self._unread is not None:
            self._unread.append(data)
            return
        protocol = self.protocol
        assert protocol is not None  # noqa: S101 - nothing comes before the connection
        protocol.data_received(data)

    def arrived(self, size: int) -> None:
        """The peer has received this number of bytes."""
        self.in_flight -= size
        if self.writing_paused and self.in_flight <= self._low and not self._closing:
            self.writing_paused = False
            self._made().resume_writing()

    def lose(self, error: Exception | None) -> None:
        """The connection is lost. The protocol is told once."""
        if not self.lost:
            self.lost = self._closing = True
            self.interface.forget(self)
            if self.protocol is not None:
                self.protocol.connection_lost(error)

    def _made(self) -> asyncio.Protocol:
        assert self.protocol is not None  # noqa: S101 - nothing comes before the connection
        return self.protocol


class Listener:
    """The result of ``create_server``: it accepts until it is closed."""

    def __init__(self, interface: Interface, port: int) -> None:
        self._interface = interface
        self._port = port

    def close(self) -> None:
        """Accepts no more connections. Existing ones stay."""
        self._interface.listening.pop(self._port, None)

    async def wait_closed(self) -> None:
        """Returns at once."""


class Interface:
    """The network as one process sees it: its sockets and the ports that it listens on."""

    def __init__(self, sockets: Sockets, process: Process, name: str, ip: str) -> None:
        self.sockets = sockets
        self.process = process
        self.name = name
        self.ip = ip
        self.listening: dict[int, Factory] = {}
        self.open: dict[SimulatedSocket, None] = {}
        sockets.attach(self)

    def listen(self, factory: Factory, host: str, port: int) -> Listener:
        """As ``create_server``."""
        if host != self.ip or port in self.listening:
            raise OSError(f"{host}:{port} is taken, or not an address of {self.ip}")
        self.listening[port] = factory
        return Listener(self, port)

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """As ``create_connection``. It waits as long as there is no answer, not even a refusal."""
        made: asyncio.Future[SimulatedSocket] = asyncio.get_running_loop().create_future()
        self.sockets.dial(self, (host, port), made)
        socket = await made
        if socket.lost:
            raise ResetSocketError(f"{host}:{port} has closed the connection at once")
        protocol = factory()
        self.made(socket, protocol)
        return socket, protocol

    def made(self, socket: SimulatedSocket, protocol: asyncio.BaseProtocol) -> None:
        """Connects one end with its protocol."""
        socket.protocol = cast("asyncio.Protocol", protocol)
        self.open[socket] = None
        protocol.connection_made(socket)

    def forget(self, socket: SimulatedSocket) -> None:
        """The socket is closed."""
        self.open.pop(socket, None)

    def run_soon(self, callback: Callable[..., object], *args: object) -> None:
        """An event of the process, in the next turn."""
        self.sockets.loop.soon(self.process.run, callback, *args)


class Sockets:
    """All streams of a cluster. The network decides which direction is cut, and the delays."""

    def __init__(self, loop: VirtualLoop, network: Network, rng: Random) -> None:
        self.loop = loop
        self._network = network
        self._rng = rng
        self._machines: dict[str, Interface | None] = {}
        """Machines by address; ``None`` for one without power."""
        self._stuck: dict[SimulatedSocket, None] = {}
        self._next_port = 40_000
        network.on_heal(self._healed)

    # --- machines

    def attach(self, interface: Interface) -> None:
        """Adds a machine, and a process on it."""
        if self._machines.get(interface.ip, interface) is None:
            self._try_again(
                [each for each in self._stuck if each.peer.interface.ip == interface.ip]
            )
        self._machines[interface.ip] = interface

    def process_ended(self, interface: Interface, *, power_lost: bool) -> None:
        """The kernel closes the sockets of a dead process. Without power there is no kernel."""
        interface.listening.clear()
        if power_lost:
            self._machines[interface.ip] = None
        for socket in list(interface.open):
            socket.lost = True
            if not power_lost:
                self.transmit(socket, ResetSocketError("the process has ended"))
        interface.open.clear()

    # --- connections

    def dial(
        self, caller: Interface, address: Address, made: asyncio.Future[SimulatedSocket]
    ) -> None:
        """Asks for a connection, and repeats it while there is no answer."""
        self.loop.after(self._delay(), self._dialled, caller, address, made)

    def _dialled(
        self, caller: Interface, address: Address, made: asyncio.Future[SimulatedSocket]
    ) -> None:
        if made.done() or not caller.process.alive:
            return
        machine = self._machines.get(address[0])
        if machine is None or self._is_cut(caller, machine) or self._is_cut(machine, caller):
            self.loop.after(DIAL_RETRY_SECONDS, self._dialled, caller, address, made)
            return
        factory = machine.listening.get(address[1])
        if factory is None:
            refusal = ConnectionRefusedError(f"nobody listens on {address[0]}:{address[1]}")
            self.loop.after(self._delay(), caller.process.run, _refuse, made, refusal)
            return
        self._next_port += 1
        near = SimulatedSocket(caller, address)
        far = SimulatedSocket(machine, (caller.ip, self._next_port))
        near.peer, far.peer = far, near
        machine.process.run(self._accepted, machine, far, factory)
        self.loop.after(self._delay(), caller.process.run, _connected, made, near)

    def _accepted(self, machine: Interface, far: SimulatedSocket, factory: Factory) -> None:
        machine.made(far, factory())

    # --- bytes

    def transmit(self, sender: SimulatedSocket, data: bytes | Exception) -> None:
        """Sends bytes, the end, or a reset; in order."""
        if data and isinstance(data, bytes) and self._rng.random() < SPLIT_SHARE:
            cut = self._rng.randrange(len(data) + 1)
            if 0 < cut < len(data):
                self._send(sender, data[:cut])
                data = data[cut:]
        self._send(sender, data)

    def _send(self, sender: SimulatedSocket, data: bytes | Exception) -> None:
        at = self.loop.now + self._network.stream_delay(self._rng)
        if self._network.late:
            way = sender.interface.name, sender.peer.interface.name
            at += self._network.late.get(way, 0.0)
        earliest = sender.last_arrival + IN_ORDER_SECONDS
        at = max(at, earliest)
        sender.last_arrival = at
        self.loop.at(at, self._arrive, sender, data)

    def _arrive(self, sender: SimulatedSocket, data: bytes | Exception) -> None:
        here, receiver = sender.interface, sender.peer
        there = receiver.interface
        machine = self._machines.get(there.ip)
        if sender.stuck or machine is None or self._network.cuts(here.name, there.name):
            if not sender.stuck:
                sender.stuck_since = self.loop.time()
                self._stuck[sender] = None
                self.loop.after(GIVE_UP_SECONDS, self._give_up, sender, sender.stuck_since)
            sender.stuck.append(data)
        elif not isinstance(data, bytes):
            there.process.run(receiver.lose, data)
        elif data is END:
            there.process.run(receiver.lose, None)
        elif receiver.lost or not there.process.alive:
            # The machine is there, but no process on it has this stream.
            error = ResetSocketError("reset by the peer")
            self.loop.after(self._delay(), here.process.run, sender.lose, error)
        else:
            if sender.writing_paused:
                here.process.run(sender.arrived, len(data))
            else:  # only its kernel gets it
                sender.in_flight -= len(data)
            there.process.run(receiver.receive, data)

    def _give_up(self, sender: SimulatedSocket, since: float) -> None:
        if sender.stuck and sender.stuck_since == since:
            self._stuck.pop(sender, None)
            sender.stuck.clear()
            error = TimeoutError("the peer has not confirmed anything for too long")
            sender.interface.process.run(sender.lose, error)

    def _healed(self) -> None:
        self._try_again(list(self._stuck))

    def _try_again(self, senders: Sequence[SimulatedSocket]) -> None:
        for sender in senders:
            del self._stuck[sender]
            waiting, sender.stuck = sender.stuck, deque()
            for data in waiting:
                self._send(sender, data)

    # --- the network

    def _is_cut(self, sender: Interface, receiver: Interface) -> bool:
        return self._network.cuts(sender.name, receiver.name)

    def _delay(self) -> float:
        """The delay of a chunk. It is longer for lost bytes, because the sender repeats them."""
        return self._network.stream_delay(self._rng)


def _refuse(made: asyncio.Future[SimulatedSocket], error: OSError) -> None:
    if not made.done():
        made.set_exception(error)


def _connected(made: asyncio.Future[SimulatedSocket], near: SimulatedSocket) -> None:
    if made.done():
        near.interface.sockets.transmit(near, ResetSocketError("given up while it was made"))
    else:
        made.set_result(near)
