"""The peers' network of a simulated cluster: delay, loss, duplication, reordering, partitions.

Messages pass through the shipped codec. A cut link is either noticed, as a closed socket is, or
silently swallows messages, as a dead cable does. A dead process breaks its links. So does a
receiver of a frame with flipped bits (``engine/bit_flips.py``), as the shipped transport does.

Connections are authenticated: each end learns whom the other's certificate names, as with TLS, and
the shipped code decides whether to talk (:class:`~dledger.wire.peer_identity.Admission`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

from dledger.errors import PeerError
from dledger.wire.codec import MessageEncoder, decode_message
from dledger.wire.features import FEATURES, STATE_PROOF
from dledger.wire.greeting import Greeting, host_of, pack_greeting, unpack_greeting
from dledger.wire.peer_identity import Admission, PeerIdentity
from dledger.wire.service_messages import StateReport
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.bit_flips import flipped
from simulator.engine.violation import Violation

if TYPE_CHECKING:
    from simulator.engine.event_loop import VirtualLoop
    from simulator.engine.process import Process
    from simulator.engine.random_streams import Streams

NOTICE_SECONDS = (0.0001, 0.001)
DIAL_SECONDS = 0.002
REDIAL_SECONDS = 0.02
DELAY_SECONDS_MIN = 0.0001
IN_ORDER_SECONDS = 1e-6
RESEND_SECONDS = 0.2
HEARD_KEPT = 32


@dataclass(slots=True)
class NetworkFaults:
    """Faults of the network, as probabilities for a message; delays in seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    flips: float = 0.0
    delay_max: float = 0.002


class PeerHost(Protocol):
    """The machine at one end of the links. It sees every message."""

    name: str
    note: Callable[[str], None]

    @property
    def greeting(self) -> Greeting:
        """Its greeting when it dials."""

    @property
    def certified(self) -> PeerIdentity:
        """The name in its certificate."""

    @property
    def feed(self) -> Callable[[bytes], None]:
        """Adds bytes of the last event to the digest of the run."""

    def sends(self, peer: str, number: int, message: Message) -> None:
        """Called before a message leaves."""

    def receives(self, sender: str, number: int, message: Message) -> None:
        """Called before a message is handled."""

    def coverage_mark(self, name: str) -> None:
        """Counts a situation that runs should reach."""


class SimulatedTransport:
    """One process's end of all its links (see :class:`dledger.wire.transport.Transport`)."""

    def __init__(self, network: Network, host: PeerHost, process: Process) -> None:
        self.process = process
        self.features: Collection[str] = FEATURES
        """The features that its process announces."""
        self._network = network
        self._host = host
        self._encoder = MessageEncoder()
        self._handler: TransportHandler | None = None
        self._up: dict[str, bool] = {}
        self._admission = Admission(host.certified, required=True)
        self.heard: deque[tuple[str, bytes]] = deque(maxlen=HEARD_KEPT)
        """The newest frames and their senders. An attacker may have seen them."""

    async def start(self, handler: TransportHandler) -> None:
        """See :class:`dledger.wire.transport.Transport`."""
        self._handler = handler
        self._network.attach(self._host.name, self)

    async def stop(self) -> None:
        """See :class:`dledger.wire.transport.Transport`."""
        self._handler = None
        self._network.detach(self._host.name, self)

    def send(self, peer: str, message: Message) -> None:
        """See :class:`dledger.wire.transport.Transport`."""
        if not self.process.alive:
            return  # the event in which the process died still runs to its end
        network = self._network
        number = network.sent = network.sent + 1
        self._host.sends(peer, number, message)
        if self._up.get(peer) and not network.withholds(self._host.name, message):
            frame = b"".join(self._encoder.encode(message))
            self._host.feed(frame)
            network.carry(self._host.name, peer, number, frame)

    def reset(self, peer: str) -> None:
        """See :class:`dledger.wire.transport.Transport`."""
        self._host.note(f"breaks the link to {peer}")
        self._network.break_link(self._host.name, peer)

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """See :class:`dledger.wire.transport.Transport`. Here everybody finds everybody by name."""

    def linked(self) -> list[str]:
        """The peers to which this end believes to be linked."""
        return [peer for peer, up in self._up.items() if up]

    def receive(self, sender: str, number: int, frame: bytes, flipped: bool) -> None:
        """A frame arrives, perhaps with flipped bits."""
        if self._handler is None or not self._up.get(sender):
            return
        if flipped:
            self._refuse(sender, number, frame)
            return
        self.heard.append((sender, frame))
        message = decode_message(frame)
        if isinstance(message, StateReport) and STATE_PROOF not in self.features:
            raise Violation(f"{self._host.name} gets a message that its program does not know")
        self._host.receives(sender, number, message)
        self._handler.on_message(sender, message)

    def _refuse(self, sender: str, number: int, frame: bytes) -> None:
        """Drops the connection, and dials again. Later frames on it are lost."""
        try:
            message = decode_message(frame)
        except PeerError as error:
            self._host.note(f"refuses #{number} of {sender}: {error}")
            self._host.coverage_mark("damaged frame refused")
            self.link(sender, up=False, features=())
            self._network.break_link(self._host.name, sender)
        else:
            raise Violation(
                f"{self._host.name} takes frame #{number} of {sender}, in which bits have flipped, "
                f"for {type(message).__name__}"
            )

    def takes(self, far: SimulatedTransport) -> bool:
        """Whether the shipped code talks to that one: on the connection that it dials, and on the
        one that is dialled."""
        host = far._host
        try:
            self._admit(pack_greeting(host.greeting), host.certified)
            self._admission.check_dialled(host.name, host.certified)
        except PeerError:
            return False
        return True

    def meet(self, greeting: Greeting, certified: PeerIdentity | None, frames: list[bytes]) -> None:
        """Somebody dials who greets so and shows that certificate, and answers where the peer of
        that name is dialled. Where it is believed, it says ``frames``."""
        if self._handler is None:
            return
        peer = greeting.node
        try:
            self._admit(pack_greeting(greeting), certified)
        except PeerError as greeted:
            try:
                self._admission.check_dialled(peer, certified)
            except PeerError:
                self._host.note(f"refuses who says it is {peer}: {greeted}")
                self._host.coverage_mark("attacker refused")
                return
        self._host.note(f"takes {certified} for {peer}")
        self.link(peer, up=True, features=FEATURES)
        for frame in frames:
            if self._handler is None or not self.process.alive:
                return
            self._handler.on_message(peer, decode_message(frame))

    def _admit(self, frame: bytes, certified: PeerIdentity | None) -> None:
        greeting = unpack_greeting(frame)
        remote = host_of(greeting.address)
        self._admission.check_greeting(greeting, certified, remote, greeting.address)

    def link(self, peer: str, up: bool, features: Collection[str]) -> None:
        """A link came up or broke, and this end notices; the peer announced these features."""
        if self._handler is None or self._up.get(peer, False) == up:
            return
        self._up[peer] = up
        self._host.note(f"link {peer} {'up' if up else 'lost'}")
        if up:
            self._handler.on_peer_connected(peer, features)
        else:
            self._handler.on_peer_lost(peer)


class Network:
    """All links of a cluster."""

    def __init__(self, loop: VirtualLoop, streams: Streams, faults: NetworkFaults) -> None:
        self._loop = loop
        self._streams = streams
        self._link_times = streams.stream("links")
        self.faults = faults
        self._ends: dict[str, SimulatedTransport] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._last_arrival: dict[tuple[str, str], float] = {}
        self._rngs: dict[tuple[str, str], Random] = {}
        self.sent = 0
        """The number of messages so far. The trace shows by it which one arrives."""
        self._told_of_healing: list[Callable[[], None]] = []
        self.late: dict[tuple[str, str], float] = {}
        """By sender and receiver, the additional seconds that streams take."""
        self._late_until: dict[tuple[str, str], float] = {}
        self._withheld: dict[str, int] = {}

    # --- processes

    def attach(self, name: str, end: SimulatedTransport) -> None:
        """A process listens. Links to all reachable peers come up soon."""
        self._ends[name] = end
        self.relink()

    def detach(self, name: str, end: SimulatedTransport) -> None:
        """A process is gone. Its peers see their sockets close."""
        if self._ends.get(name) is not end:
            return
        del self._ends[name]
        for peer in self._ends:
            if not self._is_cut(name, peer):
                self._notice(peer, name, up=False)

    def relink(self) -> None:
        """Links come up if both ends are there and have none."""
        names = list(self._ends)
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                if not self._is_cut(one, other):
                    self._loop.after(DIAL_SECONDS + self._soon(), self._connect, one, other)

    # --- faults

    def cut(self, sender: str, receiver: str, *, noticed: bool) -> None:
        """Cuts one direction: nothing from ``sender`` reaches ``receiver``."""
        self._cut[sender, receiver] = None
        if noticed:
            self.break_link(sender, receiver)

    def heal(self) -> None:
        """Ends all cuts, delays and withheld messages."""
        self._cut.clear()
        for way, seconds in self.late.items():
            self._late_until[way] = self._loop.now + seconds + self.faults.delay_max
        self.late.clear()
        self._withheld.clear()
        for name, end in self._ends.items():
            for peer in end.linked():
                if peer not in self._ends:
                    self._notice(name, peer, up=False)
        self.relink()
        for tell in self._told_of_healing:
            tell()

    def on_heal(self, tell: Callable[[], None]) -> None:
        """Calls ``tell`` at each healing."""
        self._told_of_healing.append(tell)

    def withhold_commits(self, sender: str, index: int) -> None:
        """Messages of ``sender`` with a higher commit index are lost."""
        self._withheld[sender] = index

    def withholds(self, sender: str, message: Message) -> bool:
        """Whether a message is lost because of its commit index."""
        index = self._withheld.get(sender)
        return index is not None and getattr(message, "commit_index", -1) > index

    def cuts(self, sender: str, receiver: str) -> bool:
        """Whether nothing passes from one to the other."""
        return (sender, receiver) in self._cut

    def is_late(self, sender: str, receiver: str) -> bool:
        """Whether bytes from one to the other may be in progress for seconds, healed or not: later
        bytes of the same stream wait for them."""
        way = (sender, receiver)
        return way in self.late or self._loop.now < self._late_until.get(way, 0.0)

    def stream_delay(self, rng: Random) -> float:
        """Seconds that a chunk of a stream takes, including lost bytes that are sent again."""
        faults = self.faults
        delay = rng.uniform(DELAY_SECONDS_MIN, faults.delay_max)
        while faults.loss and rng.random() < faults.loss:
            delay += RESEND_SECONDS
        return delay

    def break_link(self, one: str, other: str) -> None:
        """Both ends see their sockets close. They link again unless something is cut."""
        self._notice(one, other, up=False)
        self._notice(other, one, up=False)
        self._loop.after(REDIAL_SECONDS, self.relink)

    def attack(
        self,
        victim: str,
        greeting: Greeting,
        certified: PeerIdentity | None,
        forge: Callable[[list[tuple[str, bytes]]], list[bytes]],
    ) -> None:
        """Somebody who is no process of ours talks to ``victim``; ``forge`` makes what it says of
        what the victim heard before."""
        end = self._ends.get(victim)
        if end is not None and not end.process.paused:
            end.process.run(end.meet, greeting, certified, forge([*end.heard]))

    # --- frames

    def carry(self, sender: str, receiver: str, number: int, frame: bytes) -> None:
        """Carries one frame, or loses it."""
        faults, way = self.faults, (sender, receiver)
        rng = self._rngs.get(way)
        if rng is None:
            rng = self._rngs[way] = self._streams.stream(f"{sender} to {receiver}")
        if way in self._cut or (faults.loss and rng.random() < faults.loss):
            return
        twice = faults.duplication and rng.random() < faults.duplication
        loop = self._loop
        for _ in range(2 if twice else 1):
            at = loop.now + rng.uniform(DELAY_SECONDS_MIN, faults.delay_max)
            if not faults.reordering or rng.random() >= faults.reordering:
                earliest = self._last_arrival.get(way, 0.0) + IN_ORDER_SECONDS
                at = max(at, earliest)
                self._last_arrival[way] = at
            flips = faults.flips and rng.random() < faults.flips
            arriving = flipped(frame, rng) if flips else frame
            loop.at(at, self._arrive, way, number, arriving, bool(flips))

    def _arrive(self, way: tuple[str, str], number: int, frame: bytes, flipped: bool) -> None:
        sender, receiver = way
        end = self._ends.get(receiver)
        if end is not None and way not in self._cut:
            end.process.run(end.receive, sender, number, frame, flipped)

    # --- links

    def _is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._cut or (other, one) in self._cut

    def _soon(self) -> float:
        return self._link_times.uniform(*NOTICE_SECONDS)

    def _notice(self, name: str, peer: str, *, up: bool) -> None:
        end = self._ends.get(name)
        if end is not None:
            self._loop.after(self._soon(), end.process.run, end.link, peer, up, ())

    def _connect(self, one: str, other: str) -> None:
        here, there = self._ends.get(one), self._ends.get(other)
        if here is None or there is None or self._is_cut(one, other):
            return
        if here.process.paused or there.process.paused:
            return  # a paused process accepts no connection; it is dialled again when it runs
        if other in here.linked() and one in there.linked():
            return
        if not (here.takes(there) and there.takes(here)):
            return
        for end, peer in ((here, other), (there, one)):
            end.process.run(end.link, peer, False, ())
        for end, peer, far in ((here, other, there), (there, one, here)):
            end.process.run(end.link, peer, True, far.features)
