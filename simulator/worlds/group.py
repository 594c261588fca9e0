"""A group of hosts in a simulated world: its faults, its checks, and whether its replicas agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dledger.config import RaftConfig
from dledger.raft.configuration import NO_INCARNATION
from dledger.raft.raft_state import Role
from dledger.wire.features import TOPIC_RETENTION
from simulator.engine.event_loop import VirtualLoop
from simulator.engine.peer_network import Network
from simulator.engine.random_streams import CountingRandom
from simulator.faults.fault_atlas import FaultAtlas
from simulator.faults.injector import Fault, FaultInjector, FaultPlan
from simulator.faults.schedule import Schedule
from simulator.hosts.client_host import ClientHost
from simulator.hosts.host import Host
from simulator.hosts.observed_host import Environment, GroupConfig
from simulator.invariants import Invariant
from simulator.invariants.raft.configurations_seen import Members
from simulator.invariants.raft.membership import ConfigurationFollowsLog
from simulator.worlds.preferred_leader import must_transfer_leadership
from simulator.worlds.settings import WorldSettings
from simulator.worlds.workload import Workload

H = TypeVar("H", bound=Host)


@dataclass(frozen=True, slots=True)
class GroupKind(Generic[H]):
    """The hosts of a group, and the faults that can strike them.

    ``raft_config`` draws the limits of a run. ``invariants`` makes the checks that hold for every
    workload. Of this number of hosts ``members_away_max`` may be no members at a time.
    """

    segment_sizes: Sequence[int]
    faults: Mapping[str, Fault]
    drawn_faults: Sequence[str]
    raft_config: Callable[[CountingRandom, WorldSettings], RaftConfig]
    hosts: Callable[[GroupConfig, Environment, WorldSettings, Callable[[Host], None]], Sequence[H]]
    invariants: Callable[[Sequence[H], GroupConfig], Sequence[Invariant]]
    members_away_max: Callable[[int], int]


class Group(Generic[H]):
    """See the module; it is what faults strike (:class:`~simulator.faults.target.FaultTarget`)."""

    def __init__(
        self,
        kind: GroupKind[H],
        settings: WorldSettings,
        config: GroupConfig,
        environment: Environment,
        *,
        schedule: Schedule,
        faults: tuple[FaultPlan, CountingRandom],
    ) -> None:
        """``faults``: what strikes, and all chance of it."""
        self.group = config
        self.environment = environment
        self.schedule = schedule
        self.workloads: list[Workload] = []
        self.injector = FaultInjector(self, faults[0], kind.faults, faults[1])
        self.hosts = kind.hosts(config, environment, settings, self._process_ended)
        self.atlas = FaultAtlas(len(self.hosts))
        self.members_away_max = kind.members_away_max(len(self.hosts))
        self.invariants = list(kind.invariants(self.hosts, config))

    def watch(self) -> None:
        """Starts the observation, after all checks were added."""
        for host in self.hosts:
            host.watch(self.invariants)

    def _process_ended(self, host: Host) -> None:
        for workload in self.workloads:
            workload.process_ended(host)
        self.injector.process_ended(host)

    # --- for faults

    @property
    def loop(self) -> VirtualLoop:
        """The one of the whole world."""
        return self.environment.loop

    @property
    def network(self) -> Network:
        """The one of the whole world."""
        return self.environment.network

    @property
    def known_members(self) -> Mapping[str, Members]:
        """By host, the members that the newest configuration in its log names."""
        (members,) = (each for each in self.invariants if isinstance(each, ConfigurationFollowsLog))
        return members.known

    @property
    def target_clients(self) -> Sequence[str]:
        """The names of the clients that may crash, be paused, and be cut off."""
        return [name for workload in self.workloads for name in workload.targets]

    def host(self, name: str) -> H:
        """The host of that name. Raises :class:`KeyError`."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    def client_hosts_named(self, name: str) -> Sequence[ClientHost]:
        """The machine of a client or a NameServer."""
        hosts = (host for workload in self.workloads for host in workload.client_hosts)
        return [host for host in hosts if host.name == name]

    def ask_at_once(self, host: Host, is_write: bool) -> None:
        """Clients write or read there, now."""
        for workload in self.workloads:
            workload.ask_at_once(host, is_write=is_write)

    def crash_given(self, client: str, victim: str) -> None:
        """A process dies when a consumer next gets messages."""
        for workload in self.workloads:
            workload.crash_given(client, victim)

    def cut(self, sender: Host, receiver: Host, *, noticed: bool) -> None:
        """Cuts one direction."""
        sender.note(f"cut off from {receiver.name}{', noticed' if noticed else ''}")
        self.network.cut(sender.name, receiver.name, noticed=noticed)

    def heal_network(self) -> None:
        """Ends all cuts."""
        self.environment.trace.note("net", "healed")
        self.network.heal()

    def leader(self) -> H | None:
        """The serving leader; ``None`` if no host or more than one believes to be it."""
        leading = [
            host
            for host in self.hosts
            if host.node is not None and host.node.core.role is Role.LEADER
        ]
        if len(leading) == 1 and leading[0].node is not None and leading[0].node.serving:
            return leading[0]
        return None

    # --- in the end

    def hosts_that_must_run(self) -> Sequence[H]:
        """All hosts except those that cannot run because of damage."""
        return [host for host in self.hosts if not host.kept_from_running]

    def keeps_all(self) -> bool:
        """Whether messages no longer go by their age. While a member has an earlier program, none
        do."""
        running = [host for host in self.hosts_that_must_run() if host.node is not None]
        earlier = any(TOPIC_RETENTION not in host.features for host in running)
        kept = [host.keeps_all() for host in running]  # all must be called
        return earlier or all(kept)

    def agrees(self) -> bool:
        """Whether all hosts hold and have applied the same entries, and one leads."""
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
                return False  # the log does not name its present disk yet
            indexes = {node.applied_index, node.core.commit_index, node.core.durable_index}
            if indexes != {core.entry_cache.last_index}:
                return False
        return True
