"""The peers' network of a simulated cluster: delay, loss, duplication, reordering, partitions.

Messages pass through the shipped codec. A link that is cut is either noticed, as a closed socket
is, or silently swallows what is sent, as a dead cable does.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from dledger.codec import MessageEncoder, decode_message
from dledger.messages import Message
from dledger.transport import TransportHandler

if TYPE_CHECKING:
    from simulator.host import Host
    from simulator.loop import VirtualLoop

NOTICE_SECONDS = 0.001


@dataclass(slots=True)
class NetworkFaults:
    """What goes wrong, as probabilities for a message; delays in seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_max: float = 0.002


class SimulatedTransport:
    """One host's end (see :class:`dledger.transport.Transport`), good for one boot of it."""

    def __init__(self, network: Network, host: Host) -> None:
        self._network = network
        self._host = host
        self._encoder = MessageEncoder()
        self.boot = host.boot
        self.handler: TransportHandler | None = None
        self.up: dict[str, bool] = {}

    async def start(self, handler: TransportHandler) -> None:
        """See :class:`dledger.transport.Transport`."""
        self.handler = handler
        self._network.attach(self._host.name, self)

    async def stop(self) -> None:
        """See :class:`dledger.transport.Transport`."""
        self._network.detach(self._host.name, self)

    def send(self, peer: str, message: Message) -> None:
        """See :class:`dledger.transport.Transport`."""
        if self._host.boot != self.boot:
            return
        self._host.sends(peer, message)
        if self.up.get(peer):
            self._network.carry(self._host.name, peer, self._encoder.encode(message))

    def reset(self, peer: str) -> None:
        """See :class:`dledger.transport.Transport`."""
        self._network.break_link(self._host.name, peer)

    def receive(self, sender: str, frame: bytes) -> None:
        """A frame arrives."""
        if self._host.boot == self.boot and self.handler is not None and self.up.get(sender):
            message = decode_message(frame)
            self._host.receives(sender, message)
            self.handler.on_message(sender, message)
            self._host.stepped()

    def link(self, peer: str, up: bool) -> None:
        """A link came up or broke, and this end notices."""
        if self._host.boot != self.boot or self.handler is None or self.up.get(peer, False) == up:
            return
        self.up[peer] = up
        self._host.note(f"link {peer} {'up' if up else 'lost'}")
        if up:
            self.handler.on_peer_connected(peer)
        else:
            self.handler.on_peer_lost(peer)
        self._host.stepped()


class Network:
    """All links of a cluster."""

    def __init__(self, loop: VirtualLoop, rng: Random, faults: NetworkFaults) -> None:
        self._loop = loop
        self._rng = rng
        self.faults = faults
        self._ends: dict[str, SimulatedTransport] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._last_arrival: dict[tuple[str, str], float] = {}

    def attach(self, name: str, end: SimulatedTransport) -> None:
        """A host is there; links to all that can be reached come up soon."""
        self._ends[name] = end
        self._relink()

    def detach(self, name: str, end: SimulatedTransport) -> None:
        """A host is gone; its peers see their sockets close."""
        if self._ends.get(name) is not end:
            return
        del self._ends[name]
        for peer, other in self._ends.items():
            if not self._is_cut(name, peer):
                self._loop.call_later(self._soon(), other.link, name, False)

    def cut(self, sender: str, receiver: str, *, noticed: bool) -> None:
        """Nothing from ``sender`` reaches ``receiver`` any more."""
        self._cut[sender, receiver] = None
        if noticed:
            self.break_link(sender, receiver)

    def heal(self) -> None:
        """All links work again, without faults where the caller cleared them."""
        self._cut.clear()
        for name, end in self._ends.items():
            for peer in [peer for peer, up in end.up.items() if up and peer not in self._ends]:
                self._loop.call_later(self._soon(), self._ends[name].link, peer, False)
        self._relink()

    def break_link(self, one: str, other: str) -> None:
        """Both ends see their sockets close, and find each other again if nothing is cut."""
        for here, there in ((one, other), (other, one)):
            end = self._ends.get(here)
            if end is not None:
                self._loop.call_later(self._soon(), end.link, there, False)
        self._loop.call_later(0.02 + self._soon(), self._relink)

    def carry(self, sender: str, receiver: str, frame: bytes) -> None:
        """Takes one frame along, or not."""
        faults, rng = self.faults, self._rng
        if (sender, receiver) in self._cut or rng.random() < faults.loss:
            return
        for _ in range(2 if rng.random() < faults.duplication else 1):
            at = self._loop.time() + rng.uniform(0.0001, faults.delay_max)
            if rng.random() >= faults.reordering:
                at = max(at, self._last_arrival.get((sender, receiver), 0.0) + 1e-6)
                self._last_arrival[sender, receiver] = at
            self._loop.call_at(at, self._arrive, sender, receiver, frame)

    def _arrive(self, sender: str, receiver: str, frame: bytes) -> None:
        end = self._ends.get(receiver)
        if end is not None and (sender, receiver) not in self._cut:
            end.receive(sender, frame)

    def _is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._cut or (other, one) in self._cut

    def _soon(self) -> float:
        return self._rng.uniform(0.1, 1.0) * NOTICE_SECONDS

    def _relink(self) -> None:
        names = list(self._ends)
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                if not self._is_cut(one, other):
                    self._loop.call_later(0.002 + self._soon(), self._connect, one, other)

    def _connect(self, one: str, other: str) -> None:
        here, there = self._ends.get(one), self._ends.get(other)
        if here is None or there is None or self._is_cut(one, other):
            return
        if here.up.get(other) and there.up.get(one):
            return
        here.link(other, False)
        there.link(one, False)
        here.link(other, True)
        there.link(one, True)
