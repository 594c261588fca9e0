"""One simulated machine: a disk that outlives its processes, and at most one process on it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from dledger.config import RaftConfig
from dledger.messages import Message
from dledger.node import Executors, Node
from dledger.statemachine import Leadership
from simulator.disk import PowerLossError, SimulatedFileSystem
from simulator.executors import SimulatedExecutor
from simulator.loop import ProcessLoop, VirtualLoop
from simulator.machine import ChainMachine
from simulator.network import Network, SimulatedTransport
from simulator.violation import Violation
from store.entry import Entry
from store.errors import StoreError
from store.replica import ReplicaStore, StoreConfig

if TYPE_CHECKING:
    from simulator.invariants import Invariant
    from simulator.trace import Trace

DIRECTORY = "/data"
START_SECONDS = 0.01


class Host:
    """A machine of the cluster, by the name of its node."""

    def __init__(
        self,
        name: str,
        *,
        voters: Collection[str],
        loop: VirtualLoop,
        rng: Random,
        network: Network,
        trace: Trace,
        config: RaftConfig,
        segment_size: int,
    ) -> None:
        self.name = name
        self.voters = voters
        self.boot = 0
        self.disk_slowness = 1.0
        self.fs = SimulatedFileSystem(rng)
        self.node: Node | None = None
        self.machine: ChainMachine | None = None
        self.invariants: Sequence[Invariant] = ()
        self.fatal: BaseException | None = None
        self._loop = loop
        self._rng = rng
        self._network = network
        self._trace = trace
        self._config = config
        self._segment_size = segment_size
        self._transport: SimulatedTransport | None = None

    def note(self, what: str) -> None:
        """Adds an event to the trace."""
        self._trace.note(self.name, what)

    # --- power and processes

    def start(self) -> None:
        """Boots: opens the store, which recovers, and joins the group."""
        if self.node is not None:
            return
        self.boot += 1
        boot = self.boot
        store_config = StoreConfig(
            "sim", self.name, self._segment_size, min_free_bytes=0, index_rows_per_file=16
        )
        try:
            store = ReplicaStore.open(self.fs, DIRECTORY, store_config)
        except PowerLossError:
            self.power_failed()
            return
        except StoreError as error:
            raise Violation(f"{self.name} cannot start: {error!r}") from error
        self.note(
            f"boots: term {store.recovered.term}, log to {store.recovered.last_index}, "
            f"commit {store.recovered.commit_index}, cut {store.recovered.torn_bytes_cut}"
        )
        self._transport = SimulatedTransport(self._network, self)
        self.machine = ChainMachine(self._applied, self._leadership, self._restored)
        self.node = Node(
            node=self.name,
            voters=self.voters,
            store=store,
            transport=self._transport,
            machine=self.machine,
            executors=Executors(
                log=SimulatedExecutor(self._loop, self._rng, self),
                reads=SimulatedExecutor(self._loop, self._rng, self),
                background=SimulatedExecutor(self._loop, self._rng, self),
            ),
            loop=ProcessLoop(self._loop, lambda: self.boot == boot),
            rng=self._rng,
            on_fatal=self._fatal,
            config=self._config,
        )
        for invariant in self.invariants:
            invariant.booted(self)
        with suppress(StopIteration):
            self.node.start().send(None)  # never waits: the simulated transport starts at once
        self.stepped()

    def crash(self) -> None:
        """The process dies; the kernel still writes what it was given."""
        if self.node is not None:
            self.note("process dies")
            self._die()
            self.fs.crash()

    def power_failed(self) -> None:
        """The machine loses power: unsynced sectors and names survive by chance."""
        self.note("power fails")
        self._die()
        self.fs.power_loss()

    def _die(self) -> None:
        self.boot += 1
        self.node = None
        if self._transport is not None:
            self._network.detach(self.name, self._transport)
            self._transport = None

    def _fatal(self, error: BaseException) -> None:
        self.fatal = error
        self.note(f"stops: {error}")
        raise Violation(f"{self.name} stops by itself: {error!r}")

    # --- what invariants are told

    def stepped(self) -> None:
        """Something has happened on this host: all that must hold is checked."""
        if self.node is not None:
            for invariant in self.invariants:
                invariant.stepped(self)

    def sends(self, peer: str, message: Message) -> None:
        """Called before a message leaves."""
        self.note(f"-> {peer} {message}")
        for invariant in self.invariants:
            invariant.sends(self, peer, message)

    def receives(self, sender: str, message: Message) -> None:
        """Called before a message is handled."""
        self.note(f"<- {sender} {type(message).__name__}")

    def _applied(self, entry: Entry, digest: bytes) -> None:
        self.note(f"applies {entry.index} of term {entry.term}, {digest.hex()}")
        for invariant in self.invariants:
            invariant.applies(self, entry, digest)

    def _restored(self, index: int, digest: bytes) -> None:
        for invariant in self.invariants:
            invariant.restored(self, index, digest)

    def _leadership(self, leadership: Leadership) -> None:
        self.note(f"is {leadership.role.value} of term {leadership.term}")
