"""Observers of a machine: the trace gets every event, an invariant what it asks for.

Beside it are the surroundings that all machines of a cluster share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from dledger.config import RaftConfig
from dledger.node.node import Node
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.transport import Message
from simulator.engine.event_loop import VirtualLoop
from simulator.engine.peer_network import Network
from simulator.engine.random_streams import Streams
from simulator.engine.tcp_sockets import Sockets
from simulator.hosts.observer import ChangedPart, HostObserver, observers_of, wants
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.engine.trace import Trace

MessageObserver: TypeAlias = Callable[[Any, str, Message], None]


class Ending(Enum):
    """How a process ends. The kernel still writes the dead process's data; a machine without power
    does not."""

    CRASH = "process dies"
    POWER_LOSS = "power fails"


CLUSTER = "DefaultCluster"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Parts that all hosts of a group share."""

    voters: Sequence[str]
    raft: RaftConfig
    segment_size: int
    name: str = "broker-a"
    subnet: str = "10.0.0"

    def ip(self, name: str) -> str:
        """The IP address of a member's machine."""
        return f"{self.subnet}.{self.voters.index(name) + 1}"

    def identity(self, name: str) -> PeerIdentity:
        """The name in the certificate of a member."""
        return PeerIdentity(CLUSTER, self.name, name)


@dataclass(frozen=True, slots=True)
class Environment:
    """What all hosts of a cluster share."""

    loop: VirtualLoop
    streams: Streams
    network: Network
    sockets: Sockets
    trace: Trace


_State: TypeAlias = tuple[int, int, int, int, int, Role, str, int]
"""Commit index, durable index, chain CRC, last index, term, role, vote, boot."""


def _changed(before: _State | None, state: _State) -> int:
    """The parts (:class:`~simulator.hosts.observer.ChangedPart`) in which two states differ."""
    if before is None or before[7] != state[7]:
        return 15
    return (
        (before[0] != state[0])
        | (before[1] != state[1]) << 1
        | (before[2:4] != state[2:4]) << 2
        | (before[4:7] != state[4:7]) << 3
    )


class ObservedHost:
    """A machine by the name of its node. ``boot`` counts its processes."""

    def __init__(self, name: str, environment: Environment) -> None:
        self.name = name
        self.boot = 0
        self.node: Node | None = None
        self.observers: Sequence[HostObserver[Any]] = ()
        self._environment = environment
        self.note: Callable[[str], None] = partial(environment.trace.note, name)
        """Adds an event to the trace."""
        self.feed = environment.trace.feed
        """Makes bytes of the last event part of the run's hash."""
        self._stepped: _State | None = None
        self.watch(())

    def watch(self, observers: Sequence[HostObserver[Any]]) -> None:
        """From now on, each observer gets the events of this host that it asks for."""
        self.observers = observers
        stepped = [
            (int(each.step_parts), each.stepped) for each in observers if wants(each, "stepped")
        ]
        self._on_step: list[list[Callable[[Any], None]]] = [
            [tell for parts, tell in stepped if parts & changed]
            for changed in range(ChangedPart.ALL + 1)
        ]
        self._on_send: dict[type[Message], list[MessageObserver]] = {}
        self._on_receipt: dict[type[Message], list[MessageObserver]] = {}
        self._on_apply: list[Callable[[Any, Entry, bytes], None]] = [
            each.applies for each in observers if wants(each, "applies")
        ]

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning of the run."""
        return self._environment.loop.time()

    def coverage_mark(self, name: str) -> None:
        """Counts a situation that runs should reach."""
        self._environment.trace.coverage_mark(name)

    # --- events for invariants

    def _step(self) -> None:
        """An event was handled: calls the observers of the parts that changed."""
        if self.node is None:
            return
        core = self.node.core
        raft_state, local, log = core.raft_state, core.raft_log, core.entry_cache
        state = (
            local.commit_index,
            local.durable_index,
            log.chain_crc,
            log.last_index,
            raft_state.term,
            raft_state.role,
            raft_state.vote,
            self.boot,
        )
        before = self._stepped
        if state == before:
            return
        self._stepped = state
        for tell in self._on_step[_changed(before, state)]:
            tell(self)

    def sends(self, peer: str, number: int, message: Message) -> None:
        """Called before a message leaves. Its number is unique in the run."""
        self._environment.trace.note(self.name, f"-> {peer} #{number}", message)
        kind = type(message)
        told = self._on_send.get(kind)
        if told is None:
            found = observers_of(self.observers, "sends", kind)
            told = self._on_send[kind] = [each.sends for each in found]
        for tell in told:
            tell(self, peer, message)

    def receives(self, sender: str, number: int, message: Message) -> None:
        """Called before a message is handled. A repeated one has the number of the first."""
        kind = type(message)
        self.note(f"<- {sender} #{number} {kind.__name__}")
        told = self._on_receipt.get(kind)
        if told is None:
            found = observers_of(self.observers, "receives", kind)
            told = self._on_receipt[kind] = [each.receives for each in found]
        for tell in told:
            tell(self, sender, message)

    def _applied(self, entry: Entry, digest: bytes) -> None:
        self.note(f"applies {entry.index} of term {entry.term}, {digest.hex()}")
        self._environment.trace.feed(digest)
        for tell in self._on_apply:
            tell(self, entry, digest)

    def _restored(self, index: int, digest: bytes) -> None:
        host: Any = self
        for observer in self.observers:
            observer.restored(host, index, digest)

    def _leadership(self, leadership: Leadership) -> None:
        self.note(
            f"is {leadership.role.value} of term {leadership.term}"
            f"{', serving' if leadership.serving else ''}"
        )
