"""One run: hosts and clients under faults, then healing and the final checks.

In the second part faults end, and all processes are started. Within a limit of time the cluster
must become healthy: every call ends, one leader serves, a new proposal commits, all replicas are
equal, and then nothing changes any more. Without this, nodes that do nothing would pass (bugs A6,
A7, B12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from simulator.engine.event_loop import VirtualLoop
from simulator.engine.peer_network import Network, NetworkFaults
from simulator.engine.random_streams import Streams
from simulator.engine.tcp_sockets import Sockets
from simulator.engine.trace import Trace
from simulator.engine.violation import Violation
from simulator.faults.injector import FaultPlan
from simulator.faults.membership import bring_back
from simulator.faults.schedule import Action, Schedule
from simulator.hosts.client_host import ClientHost, Main
from simulator.hosts.host import Host
from simulator.hosts.observed_host import Environment, GroupConfig
from simulator.invariants import Invariant
from simulator.invariants.damage_repaired import DamageRepaired
from simulator.worlds.cluster_summary import summarize_hosts
from simulator.worlds.group import Group, GroupKind, H
from simulator.worlds.lease_reads import with_leases
from simulator.worlds.outcome import Outcome
from simulator.worlds.preferred_leader import with_preferred_leader
from simulator.worlds.settings import BUSY, WorldSettings
from simulator.worlds.workload import Workload

QUIET_SECONDS = 2.0
"""After the healing, nothing may change for this long: several election timeouts."""

W = TypeVar("W", bound=Workload)


@dataclass(frozen=True, slots=True)
class World(Generic[H]):
    """The parts of a run.

    Each of ``workloads`` makes its clients and checks for a cluster; they start and end in this
    order.
    """

    kind: GroupKind[H]
    workloads: Sequence[Callable[[Cluster[H]], Workload]]
    settings: WorldSettings = BUSY


class Cluster(Group[H]):
    """The first group of a world, and everything else in it. The seed decides everything here
    too."""

    def __init__(
        self,
        world: World[H],
        seed: int,
        *,
        nodes: int = 3,
        plan: FaultPlan | None = None,
        kinds: Sequence[str] = (),
        schedule: Sequence[Action] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        """``kinds`` are the faults that the seed may choose, none for the default ones. ``plan``
        replaces that choice, and ``schedule`` all actions."""
        kind, self.settings = world.kind, world.settings
        self.seed = seed
        self.streams = streams = Streams(seed)
        self.rng = rng = streams.stream("cluster")
        loop = VirtualLoop()
        self.trace = Trace(loop.time, show)
        network = Network(loop, streams, NetworkFaults())
        drawn = FaultPlan.drawn(seed, kinds or kind.drawn_faults)
        self.plan = drawn if plan is None else plan
        raft = with_preferred_leader(kind.raft_config(rng, self.settings), streams, nodes)
        config = GroupConfig(
            voters=[f"n{place}" for place in range(nodes)],
            raft=with_leases(raft, streams),
            segment_size=rng.choice(kind.segment_sizes),
        )
        sockets = Sockets(loop, network, streams.stream("sockets"))
        super().__init__(
            kind,
            self.settings,
            config,
            Environment(loop, streams, network, sockets, self.trace),
            schedule=Schedule(loop, self.trace, schedule, self._group_of),
            faults=(self.plan, streams.stream("faults")),
        )
        self.kind = kind
        self._taken = {each for host in self.hosts for each in (host.name, host.ip)}
        self.groups: list[Group[Any]] = [self]
        """This group, and the groups that workloads have added."""
        for make in world.workloads:
            workload = make(self)
            self.workloads.append(workload)
            self.invariants += workload.invariants
        for group in self.groups:
            group.watch()
            self.schedule.observers += [
                each.acted for each in group.invariants if type(each).acted is not Invariant.acted
            ]
        self._healing = False
        self._repaired: list[DamageRepaired] = []
        self._failure: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(self._failed)

    def workload(self, kind: type[W]) -> W:
        """The workload of that kind. Raises :class:`ValueError` if there is not just one."""
        (found,) = (each for each in self.workloads if isinstance(each, kind))
        return found

    @property
    def clients(self) -> Sequence[ClientHost]:
        """The machines of all clients and of NameServers."""
        return [host for workload in self.workloads for host in workload.client_hosts]

    @property
    def _all_hosts(self) -> Sequence[Host]:
        return [host for group in self.groups for host in group.hosts]

    def _group_of(self, action: Action) -> Group[Any]:
        """The group of its hosts; an action without a host affects what all groups share."""
        names = {word for each in action.arguments for word in str(each).split(",")}
        for group in self.groups:
            if names & {host.name for host in group.hosts}:
                return group
        return self

    def open_calls(self) -> int:
        """The number of client calls that have not ended."""
        return sum(workload.open_calls() for workload in self.workloads)

    def all_delivered(self) -> bool:
        """Whether all consumers have the messages that are stored for them."""
        return all(workload.delivered() for workload in self.workloads)

    def client_host(self, name: str, ip: str, main: Main) -> ClientHost:
        """Makes the machine of a client. Raises :class:`ValueError` if another one has its name or
        its address."""
        for taken in (name, ip):
            if taken in self._taken:
                raise ValueError(f"two machines are called {taken}")
            self._taken.add(taken)
        return ClientHost(name, ip, self.environment, main, self._client_ended)

    def client_hosts(
        self, names: Iterable[str], subnet: str, mains: Sequence[Main], first: int = 1
    ) -> list[ClientHost]:
        """Makes the machines of several clients. Their addresses in ``subnet`` begin with
        ``first``."""
        return [
            self.client_host(name, f"{subnet}.{place}", main)
            for place, (name, main) in enumerate(zip(names, mains, strict=True), first)
        ]

    def _client_ended(self, client_host: ClientHost) -> None:
        """A client's process died, so the outcomes of its requests are unknown."""
        for workload in self.workloads:
            workload.client_ended(client_host)

    # --- the run

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Ends the run with that error, unless it has another one already."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def pass_time(self, seconds: float) -> None:
        """Runs the cluster for some time. Raises errors of checks and of the shipped code."""
        await asyncio.wait([self._failure], timeout=seconds)
        if self._failure.done():
            self._failure.result()

    async def until(self, reached: Callable[[], bool], awaited: str) -> None:
        """Runs the cluster until ``reached``. Raises :class:`Violation` if it takes too long."""
        healing_seconds = self.settings.healing_seconds
        deadline = self.loop.time() + healing_seconds
        while not (self._all_are_back() and reached()):
            if self.loop.time() >= deadline:
                raise Violation(
                    f"{awaited}: not within {healing_seconds:g} s without faults: "
                    f"{summarize_hosts(self._all_hosts)}; {self.open_calls()} calls open"
                )
            await self.pass_time(0.05)

    def _all_are_back(self) -> bool:
        """Whether all hosts that must run are voters. A removed node may be late."""
        for repaired in self._repaired:
            repaired()  # which notes when the last entry was repaired
        return not self._healing or all(bring_back(group) for group in self.groups)

    async def run(self, seconds: float, client_seconds: float | None = None) -> None:
        """Faults for so long, then healing; the clients work as long, or ``client_seconds``."""
        for host in self._all_hosts:
            host.start()
        self.start_clients()
        if client_seconds is not None:
            self.loop.call_at(client_seconds, self.stop_clients)
        if self.schedule.played:
            self.schedule.start()
        else:
            for group in self.groups:
                group.injector.start()
        await self.pass_time(seconds)
        for group in self.groups:
            group.injector.end()
        self.stop_clients()
        await self.heal()

    def start_clients(self) -> None:
        """Starts the workloads that prepare something, then the others."""
        for workload in self._prepares(True):
            workload.start()
        self.prepared()

    def prepared(self) -> None:
        """Starts the other workloads, if all is prepared."""
        if all(workload.is_prepared() for workload in self.workloads):
            for workload in self._prepares(False):
                workload.start()

    def _prepares(self, first: bool) -> Sequence[Workload]:
        return [workload for workload in self.workloads if workload.prepares == first]

    def stop_clients(self) -> None:
        """Stops all clients: they begin no new requests."""
        for workload in self.workloads:
            workload.stop()

    async def heal(self) -> None:
        """Ends all faults. Then the cluster must become healthy, and stay so."""
        self.trace.note("all", "faults end")
        self.network.faults = NetworkFaults()
        self.heal_network()
        for host in self._all_hosts:
            host.work_again()
        self._repaired = [DamageRepaired(group.hosts) for group in self.groups]
        self._healing = True
        await self.until(self._all_are_back, "all are voters")
        await self.until(
            lambda: all(group.keeps_all() for group in self.groups), "no topic has a retention"
        )
        await self._heal_workloads(self._prepares(True))
        await self._heal_workloads(self._prepares(False))
        await self.until(lambda: all(each() for each in self._repaired), "damage is repaired")
        await self.until(lambda: all(group.agrees() for group in self.groups), "the replicas agree")
        # A removed member that waits for a repair of its own data may start meanwhile.
        must_run = [host for group in self.groups for host in group.hosts_that_must_run()]
        running = [host for host in self._all_hosts if host.node is not None]
        settled = _state(running)
        await self.pass_time(QUIET_SECONDS)
        if (now := _state(running)) != settled:
            raise Violation(f"without faults and proposals it moves: {settled}, {now}")
        for host in must_run:
            for observer in host.observers:
                observer.healed(host)

    @staticmethod
    async def _heal_workloads(workloads: Sequence[Workload]) -> None:
        for client_host in (host for each in workloads for host in each.client_hosts):
            client_host.resume()
            client_host.start()
        for workload in workloads:
            await workload.heal()

    def switch_off(self) -> None:
        """Ends the simulation."""
        for client_host in self.clients:
            client_host.switch_off()
        for host in self._all_hosts:
            host.switch_off()
        self.loop.close()

    def outcome(self, violation: str | None, picture: str = "") -> Outcome:
        """The summary of the run so far."""
        counts = [workload.counts() for workload in self.workloads]
        return Outcome(
            seed=self.seed,
            plan=str(self.plan),
            violation=violation,
            digest=self.trace.digest(self.streams.draws),
            events=self.trace.events,
            draws=self.streams.draws,
            simulated_seconds=self.loop.time(),
            acknowledged=sum(acknowledged for acknowledged, _ in counts),
            unknown=sum(unknown for _, unknown in counts),
            last_term=max(
                (host.node.core.term for host in self.hosts if host.node is not None), default=0
            ),
            marks=dict(sorted(self.trace.marks.items())),
            schedule=tuple(self.schedule.done),
            picture=picture,
        )


def _state(hosts: Sequence[Host]) -> list[tuple[object, ...]]:
    return [
        (
            core.role.value,
            core.term,
            core.leader,
            core.entry_cache.last_index,
            core.commit_index,
        )
        for core in (host.node.core for host in hosts if host.node is not None)
    ]
