"""One run: a cluster, a client, faults for a while, and then the question whether all is well.

In the second part faults end, everybody is started, and within a bound everything must come right:
every call ends, one leader serves, a new proposal commits, all replicas hold the same, and then
nothing moves any more. Safety alone would be kept by nodes that do nothing (bugs A6, A7, B12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dledger.config import RaftConfig
from dledger.raft.configuration import NO_INCARNATION
from dledger.raft.raft_state import Role
from simulator.engine.event_loop import VirtualLoop
from simulator.engine.peer_network import Network, NetworkFaults
from simulator.engine.random_streams import CountingRandom, Streams
from simulator.engine.tcp_sockets import Sockets
from simulator.engine.trace import Trace
from simulator.engine.violation import Violation
from simulator.faults.fault_atlas import FaultAtlas
from simulator.faults.injector import Fault, FaultInjector, FaultPlan
from simulator.faults.kinds import DRAWN_FOR_NODES, NODE_FAULTS
from simulator.faults.membership import bring_back
from simulator.faults.schedule import Action, Schedule
from simulator.hosts.client_host import ClientHost
from simulator.hosts.host import Host
from simulator.hosts.observed_host import Environment, GroupConfig
from simulator.invariants import Invariant, SeenConfigurations, raft_invariants
from simulator.invariants.damage_repaired import DamageRepaired
from simulator.invariants.raft.acknowledged_durability import AcknowledgedIsDurable
from simulator.invariants.raft.configurations_seen import Members
from simulator.invariants.raft.membership import ConfigurationFollowsLog
from simulator.workload.raft_client import RaftClient
from simulator.worlds.cluster_summary import summarize_hosts
from simulator.worlds.lease_reads import with_leases
from simulator.worlds.outcome import Outcome
from simulator.worlds.preferred_leader import must_transfer_leadership, with_preferred_leader
from store.log.entry import HEADER_SIZE
from store.log.layout import entry_size_max

HEALING_SECONDS = 20.0
"""Within this time of the last fault all replicas must agree and a proposal must commit."""

QUIET_SECONDS = 2.0
"""For so long nothing may change after that: several election timeouts."""


class Cluster:
    """Hosts of one group, their network, and one client. The seed decides everything else too."""

    faults: ClassVar[Mapping[str, Fault]] = NODE_FAULTS
    drawn_faults: ClassVar[Sequence[str]] = DRAWN_FOR_NODES
    segment_sizes: ClassVar[Sequence[int]] = (700, 2_000, 20_480)
    healing_seconds: ClassVar[float] = HEALING_SECONDS
    target_clients: ClassVar[Sequence[str]] = ()
    """The names of the clients that crash, are paused, and are cut off; none here are processes."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        plan: FaultPlan | None = None,
        kinds: Sequence[str] = (),
        schedule: Sequence[Action] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        """``kinds`` are the faults that the seed may choose, none for every kind; ``plan`` replaces
        what it would choose, and ``schedule`` all that it would do."""
        self.seed = seed
        self.streams = Streams(seed)
        rng = self.streams.stream("cluster")
        self.loop = VirtualLoop()
        self.trace = Trace(self.loop.time, show)
        self.network = Network(self.loop, self.streams, NetworkFaults())
        faults_rng = self.streams.stream("faults")
        drawn = FaultPlan.drawn(faults_rng, kinds or self.drawn_faults)
        self.plan = drawn if plan is None else plan
        self.schedule = Schedule(self.loop, self.trace, schedule, self.group_of)
        self.group = GroupConfig(
            voters=[f"n{place}" for place in range(nodes)],
            raft=with_leases(
                with_preferred_leader(self._raft_config(rng), self.streams, nodes), self.streams
            ),
            segment_size=rng.choice(self.segment_sizes),
        )
        self.injector = FaultInjector(self, self.plan, self.faults, faults_rng)
        self.sockets = Sockets(self.loop, self.network, self.streams.stream("sockets"))
        self.environment = Environment(
            self.loop, self.streams, self.network, self.sockets, self.trace
        )
        self.hosts = self._make_hosts()
        self._by_name: dict[str, Host] = {host.name: host for host in self.hosts}
        self._make_clients(rng)
        self.invariants = self._make_invariants()
        told = (each for group in self.groups for each in group.invariants)
        self.schedule.observers = [
            each.acted for each in told if type(each).acted is not Invariant.acted
        ]
        for host in self.hosts:
            host.watch(self.invariants)
        self.atlas = FaultAtlas(nodes)
        self._last_proposed: int | None = None
        self._healing = False
        self._failure: asyncio.Future[None] = self.loop.create_future()
        self.loop.set_exception_handler(self._failed)

    # --- what it is made of

    def _raft_config(self, rng: CountingRandom) -> RaftConfig:
        """Limits small enough to be met within seconds."""
        return RaftConfig(
            uncommitted_bytes_max=rng.choice((2 << 10, 64 << 10)),
            cache_bytes_max=rng.choice((1 << 10, 8 << 10, 256 << 10)),
            append_bytes_max=rng.choice((512, 4 << 10)),
            window_messages=rng.choice((1, 4, 16)),
            window_bytes=8 << 10,
            checkpoint_seconds=rng.choice((1.0, 5.0)),
            checkpoint_bytes=8 << 10,
            scrub_pass_seconds=1.0,
        )

    def _make_hosts(self) -> Sequence[Host]:
        return [
            Host(name, group=self.group, environment=self.environment, ended=self._process_ended)
            for name in self.group.voters
        ]

    def _make_clients(self, rng: CountingRandom) -> None:
        self.client = RaftClient(
            self.loop,
            self.streams.stream("client"),
            self.hosts,
            payload_max=entry_size_max(self.group.segment_size) - HEADER_SIZE,
            burst_max=rng.choice((1, 3, 10)),
            pause_max=rng.choice((0.05, 0.1, 0.5)),
        )

    def _make_invariants(self) -> Sequence[Invariant]:
        seen = SeenConfigurations(self.group.voters)
        return [*raft_invariants(self.hosts, seen), AcknowledgedIsDurable(self.hosts, seen)]

    @property
    def members_away_max(self) -> int:
        """So many hosts may be no members of the group at a time."""
        return (len(self.hosts) - 1) // 2

    @property
    def groups(self) -> Sequence[Cluster]:
        """Itself, and what else there is of hosts in the same world: a group each."""
        return (self,)

    @property
    def _all_hosts(self) -> Sequence[Host]:
        return [host for group in self.groups for host in group.hosts]

    def group_of(self, _action: Action) -> Cluster:
        """That of the groups to which it is done."""
        return self

    # --- its clients

    def _start_clients(self) -> None:
        self.client.start()

    def _stop_clients(self) -> None:
        self.client.stop()

    def _clients_hear_of(self, host: Host) -> None:
        """A process of the group has ended."""
        self.client.process_ended(host)

    def _open_calls(self) -> int:
        return len(self.client.pending)

    def _client_counts(self) -> tuple[int, int]:
        """How much was acknowledged, and how much has an unknown outcome."""
        return len(self.client.acknowledged), len(self.client.unknown)

    # --- what happens in it

    @property
    def known_members(self) -> Mapping[str, Members]:
        """By host, the members that the newest configuration in its log names."""
        (members,) = (each for each in self.invariants if isinstance(each, ConfigurationFollowsLog))
        return members.known

    def host(self, name: str) -> Host:
        """The host of that name. Raises :class:`KeyError`."""
        return self._by_name[name]

    def client_hosts_named(self, _name: str) -> Sequence[ClientHost]:
        """The machine of a client or a NameServer; here there are none."""
        return ()

    def ask_at_once(self, _host: Host, _is_write: bool) -> None:
        """Clients write or read there, now; here none can."""

    def crash_given(self, _client: str, _victim: str) -> None:
        """Somebody dies as soon as a consumer is given something."""

    def _process_ended(self, host: Host) -> None:
        self._clients_hear_of(host)
        self.injector.process_ended(host)

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The run ends with that error, unless it has another one already."""
        if not self._failure.done():
            self._failure.set_exception(error)

    def cut(self, sender: Host, receiver: Host, *, noticed: bool) -> None:
        """Nothing passes from one to the other any more."""
        sender.note(f"cut off from {receiver.name}{', noticed' if noticed else ''}")
        self.network.cut(sender.name, receiver.name, noticed=noticed)

    def heal_network(self) -> None:
        """Nothing is cut any more."""
        self.trace.note("net", "healed")
        self.network.heal()

    def leader(self) -> Host | None:
        """Who serves; None if nobody does, or more than one takes itself for the leader."""
        leading = [
            host
            for host in self.hosts
            if host.node is not None and host.node.core.role is Role.LEADER
        ]
        if len(leading) == 1 and leading[0].node is not None and leading[0].node.serving:
            return leading[0]
        return None

    # --- the run

    async def pass_time(self, seconds: float) -> None:
        """Lets it run for so long. Raises what a check or the shipped code raises meanwhile."""
        await asyncio.wait([self._failure], timeout=seconds)
        if self._failure.done():
            self._failure.result()

    async def until(self, reached: Callable[[], bool], what: str) -> None:
        """Lets it run until that is so. Raises :class:`Violation` if it takes too long."""
        deadline = self.loop.time() + self.healing_seconds
        while not (self._all_are_back() and reached()):
            if self.loop.time() >= deadline:
                raise Violation(
                    f"{what}: not within {self.healing_seconds:g} s without faults: "
                    f"{summarize_hosts(self._all_hosts)}; {self._open_calls()} calls open"
                )
            await self.pass_time(0.05)

    def _all_are_back(self) -> bool:
        """Whether all who must run are voters, once faults end. Who was removed may be late."""
        return not self._healing or all(bring_back(group) for group in self.groups)

    async def run(self, seconds: float, client_seconds: float | None = None) -> None:
        """Faults for so long, then healing; the client works as long, or ``client_seconds``."""
        for host in self._all_hosts:
            host.start()
        self._start_clients()
        if client_seconds is not None:
            self.loop.call_at(client_seconds, self._stop_clients)
        if self.schedule.played:
            self.schedule.start()
        else:
            for group in self.groups:
                group.injector.start()
        await self.pass_time(seconds)
        for group in self.groups:
            group.injector.end()
        self._stop_clients()
        await self.heal()

    async def heal(self) -> None:
        """No fault any more; then everything must come right, and stay so."""
        self.trace.note("all", "faults end")
        self.network.faults = NetworkFaults()
        self.heal_network()
        for host in self._all_hosts:
            host.work_again()
        repaired = [DamageRepaired(group.hosts) for group in self.groups]
        self._healing = True
        await self.until(self._all_are_back, "all are voters")
        await self._heal_clients()
        await self.until(lambda: all(each() for each in repaired), "damage is mended")
        await self.until(lambda: all(group.agrees() for group in self.groups), "the replicas agree")
        settled = self._state()
        await self.pass_time(QUIET_SECONDS)
        if self._state() != settled:
            raise Violation(f"without faults and proposals it moves: {settled}, {self._state()}")
        for host in (host for group in self.groups for host in group.hosts_that_must_run()):
            for observer in host.observers:
                observer.healed(host)

    async def _heal_clients(self) -> None:
        """Every call ends, and a new one is answered."""
        await self.until(lambda: not self._open_calls(), "every call ends")
        await self.until(self._is_acknowledged, "a new proposal commits")

    def _is_acknowledged(self) -> bool:
        """Proposes until one proposal is acknowledged that was made after the faults."""
        if self.client.pending:
            return False
        if self._last_proposed in self.client.acknowledged:
            return True
        self._last_proposed = self.client.propose()
        return False

    def agrees(self) -> bool:
        """Whether all hosts of this group hold and have applied the same, and one leads."""
        leader = self.leader()
        if leader is None or leader.node is None:
            return False
        core = leader.node.core
        if must_transfer_leadership(self.group.raft.preferred_leader, self.hosts, leader):
            return False
        for host in self.hosts_that_must_run():
            node = host.node
            if node is None or (node.core.term, node.core.leader) != (core.term, leader.name):
                return False
            log = node.core.entry_cache
            if (log.last_index, log.chain_crc) != (
                core.entry_cache.last_index,
                core.entry_cache.chain_crc,
            ):
                return False
            noted = core.configuration.incarnations.get(host.name, NO_INCARNATION)
            if noted != node.core.incarnation:
                return False  # the log does not say yet that its disk is this one
            indexes = {node.applied_index, node.core.commit_index, node.core.durable_index}
            if indexes != {core.entry_cache.last_index}:
                return False
        return True

    def hosts_that_must_run(self) -> Sequence[Host]:
        """Those that must run: all but those that damage keeps from it."""
        return [host for host in self.hosts if not host.kept_from_running]

    def _state(self) -> list[tuple[object, ...]]:
        return [
            (
                core.role.value,
                core.term,
                core.leader,
                core.entry_cache.last_index,
                core.commit_index,
            )
            for core in (host.node.core for host in self._all_hosts if host.node is not None)
        ]

    def switch_off(self) -> None:
        """The simulation is over: what is left of it is never run."""
        for host in self._all_hosts:
            host.switch_off()
        self.loop.close()

    def outcome(self, violation: str | None, picture: str = "") -> Outcome:
        """The summary of the run so far."""
        acknowledged, unknown = self._client_counts()
        return Outcome(
            seed=self.seed,
            plan=str(self.plan),
            violation=violation,
            digest=self.trace.digest(self.streams.draws),
            events=self.trace.events,
            draws=self.streams.draws,
            simulated_seconds=self.loop.time(),
            acknowledged=acknowledged,
            unknown=unknown,
            last_term=max(
                (host.node.core.term for host in self.hosts if host.node is not None), default=0
            ),
            marks=dict(sorted(self.trace.marks.items())),
            schedule=tuple(self.schedule.done),
            picture=picture,
        )
