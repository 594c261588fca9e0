"""One run: a cluster, a client, faults for a while, and then the question whether all is well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dledger.config import RaftConfig
from dledger.errors import OutcomeUnknownError, ProposeError
from dledger.raft import Role
from simulator.faults import FaultInjector, FaultPlan
from simulator.host import Host
from simulator.invariants import all_invariants
from simulator.loop import VirtualLoop
from simulator.network import Network, NetworkFaults
from simulator.trace import CountingRandom, Trace
from simulator.violation import Violation
from store.entry import Entry, EntryKind

HEALING_SECONDS = 30.0
"""Within this time of the last fault all replicas must agree and a proposal must commit."""

CONFIG = RaftConfig(
    uncommitted_bytes_max=64 << 10,
    cache_bytes_max=4 << 10,
    append_bytes_max=2 << 10,
    window_messages=4,
    window_bytes=8 << 10,
    checkpoint_seconds=3.0,
    checkpoint_bytes=8 << 10,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run. ``violation`` is None if every promise was kept."""

    seed: int
    plan: str
    violation: str | None
    digest: str
    events: int
    draws: int
    simulated_seconds: float
    acknowledged: int
    last_term: int


class Cluster:
    """Hosts of one group, and one client that proposes numbered payloads."""

    def __init__(
        self, seed: int, *, nodes: int = 3, show: Callable[[str], None] | None = None
    ) -> None:
        self.seed = seed
        self.rng = CountingRandom(seed)
        self.loop = VirtualLoop()
        self.trace = Trace(self.loop.time, show)
        self.network = Network(self.loop, self.rng, NetworkFaults())
        self.plan = FaultPlan.drawn(self.rng)
        segment_size = self.rng.choice((700, 2_000, 20_000))
        names = [f"n{place}" for place in range(nodes)]
        self.hosts = [
            Host(
                name,
                voters=names,
                loop=self.loop,
                rng=self.rng,
                network=self.network,
                trace=self.trace,
                config=CONFIG,
                segment_size=segment_size,
            )
            for name in names
        ]
        invariants = all_invariants()
        for host in self.hosts:
            host.invariants = invariants
        self.acknowledged: dict[int, int] = {}  # number of the payload -> index of its entry
        self._proposed = 0
        self._entry_body_max = segment_size - 200

    # --- what faults do

    def cut(self, sender: Host, receiver: Host, *, noticed: bool) -> None:
        """Nothing passes from one to the other any more."""
        sender.note(f"cut off from {receiver.name}")
        self.network.cut(sender.name, receiver.name, noticed=noticed)

    def heal_network(self) -> None:
        """All links work again."""
        self.trace.note("net", "healed")
        self.network.heal()

    # --- the client

    def propose(self) -> None:
        """Proposes one payload to whoever serves, if anybody does."""
        serving = [host for host in self.hosts if host.node is not None and host.node.serving]
        if not serving:
            return
        host = self.rng.choice(serving)
        node = host.node
        assert node is not None  # noqa: S101 - chosen above
        self._proposed += 1
        number = self._proposed
        size = self.rng.randint(8, min(400, self._entry_body_max))
        body = number.to_bytes(8, "big") + bytes(size - 8)
        proposed_at: list[int] = []

        def done(error: ProposeError | None) -> None:
            if error is None:
                self.acknowledged[number] = proposed_at[0]
            elif not isinstance(error, OutcomeUnknownError):
                raise Violation(f"payload {number} was accepted and then refused: {error}")
            host.note(f"payload {number}: {error or 'acknowledged'}")

        def build(_position: int) -> list[bytes]:
            # The index is the next one; the entry does not exist yet when `done` is made.
            proposed_at.append(node.core.log.last_index + 1)
            return [body]

        try:
            node.propose(size, build, done)
        except ProposeError as error:
            host.note(f"payload {number} refused: {error}")
        host.stepped()

    def _work(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            self.propose()
        self.loop.call_later(self.rng.uniform(0.005, 0.08), self._work)

    # --- the run

    async def run(self, seconds: float) -> None:
        """Faults for so long, then healing. Raises :class:`Violation`."""
        failure: asyncio.Future[None] = self.loop.create_future()

        def failed(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            error = context.get("exception")
            if not failure.done() and isinstance(error, BaseException):
                failure.set_exception(error)

        self.loop.set_exception_handler(failed)
        for host in self.hosts:
            host.start()
        injector = FaultInjector(self, self.plan, self.rng)
        injector.start()
        self.loop.call_later(0.0, self._work)
        await asyncio.wait([failure], timeout=seconds)
        injector.stop()
        self._heal()
        deadline = self.loop.time() + HEALING_SECONDS
        while not failure.done() and not self._converged():
            if self.loop.time() >= deadline:
                raise Violation(f"not well {HEALING_SECONDS} s after the last fault: {self._say()}")
            await asyncio.wait([failure], timeout=0.1)
        if failure.done():
            failure.result()
        self._check_acknowledged()

    def _heal(self) -> None:
        self.trace.note("all", "faults end")
        self.network.faults = NetworkFaults()
        for host in self.hosts:
            host.disk_slowness = 1.0
            host.fs.disarm()
            host.start()
        self.heal_network()

    def _converged(self) -> bool:
        nodes = [host.node for host in self.hosts]
        live = [node for node in nodes if node is not None]
        leaders = [node for node in live if node.core.role is Role.LEADER and node.serving]
        if len(live) < len(nodes) or len(leaders) != 1:
            return False
        committed = leaders[0].core.commit_index
        return committed >= leaders[0].core.term_first_index and all(
            node.applied_index >= committed - 20 and node.core.durable_index >= committed - 20
            for node in live
        )

    def _say(self) -> str:
        said = []
        for host in self.hosts:
            core = None if host.node is None else host.node.core
            said.append(
                f"{host.name} down"
                if core is None
                else f"{host.name} {core.role.value} of term {core.term}, "
                f"log to {core.log.last_index}, commit {core.commit_index}"
            )
        return "; ".join(said)

    def _check_acknowledged(self) -> None:
        for host in self.hosts:
            node = host.node
            if node is None:
                continue
            last = node.applied_index
            held: dict[int, int] = {}
            index = node.store.first_index
            while index <= min(last, node.store.last_index):
                for entry in node.store.read_entries(
                    index, min(last, node.store.last_index), 1 << 20
                ):
                    _note_payload(held, entry)
                    index = entry.index + 1
            for number, at in self.acknowledged.items():
                if node.store.first_index <= at < index and held.get(at) != number:
                    raise Violation(
                        f"payload {number} was acknowledged as entry {at}; "
                        f"{host.name} holds {held.get(at)} there"
                    )

    def outcome(self, violation: str | None) -> Outcome:
        """The summary of the run so far."""
        return Outcome(
            self.seed,
            str(self.plan),
            violation,
            self.trace.digest(self.rng.draws),
            self.trace.events,
            self.rng.draws,
            self.loop.time(),
            len(self.acknowledged),
            max((host.node.core.term for host in self.hosts if host.node is not None), default=0),
        )


def _note_payload(held: dict[int, int], entry: Entry) -> None:
    if entry.kind is EntryKind.DATA:
        held[entry.index] = int.from_bytes(entry.body[:8], "big")


def simulate(
    seed: int,
    *,
    nodes: int = 3,
    seconds: float = 20.0,
    show: Callable[[str], None] | None = None,
) -> Outcome:
    """Runs one seed to its end."""
    cluster = Cluster(seed, nodes=nodes, show=show)
    violation: str | None = None
    asyncio.set_event_loop(None)
    try:
        cluster.loop.run_until_complete(cluster.run(seconds))
    except Violation as broken:
        violation = str(broken)
        cluster.trace.note("!!!", violation)
    except Exception as error:  # noqa: BLE001 - any failure of shipped code is a finding
        violation = f"{type(error).__name__}: {error}"
        cluster.trace.note("!!!", violation)
    outcome = cluster.outcome(violation)
    for task in asyncio.all_tasks(cluster.loop):
        task.cancel()
    cluster.loop.close()
    return outcome
