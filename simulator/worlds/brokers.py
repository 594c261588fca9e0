"""Groups of brokers. Everything in them is the shipped code, except for their environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dledger.config import RaftConfig
from simulator.engine.random_streams import CountingRandom
from simulator.faults.kinds import BROKER_FAULTS, DRAWN_FOR_BROKERS
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.host import Host
from simulator.hosts.observed_host import Environment, GroupConfig
from simulator.invariants import Invariant, SeenConfigurations, raft_invariants
from simulator.invariants.broker.derived_files import DerivedFilesSound
from simulator.invariants.broker.state_proof import StateProofs
from simulator.workload.name_server import NAME_SERVERS
from simulator.worlds.bare_nodes import small_limits
from simulator.worlds.group import GroupKind
from simulator.worlds.settings import WorldSettings

EARLIER_VERSION_SHARE = 0.1
"""Share of the runs in which one member has an earlier program until it restarts. None has with
access control: an earlier program does not know its settings."""


def _raft_config(rng: CountingRandom, settings: WorldSettings) -> RaftConfig:
    heartbeat = rng.choice(settings.heartbeats)
    return replace(
        small_limits(rng, settings),
        heartbeat_seconds=heartbeat,
        election_seconds=6 * heartbeat,
        scrub_pass_seconds=rng.choice(settings.scrub_passes),
    )


def _hosts(
    config: GroupConfig,
    environment: Environment,
    settings: WorldSettings,
    ended: Callable[[Host], None],
) -> Sequence[BrokerHost]:
    hosts = [
        BrokerHost(name, group=config, environment=environment, ended=ended)
        for name in config.voters
    ]
    for host in hosts:
        host.settings = replace(settings.broker, name_servers=(NAME_SERVERS,))
    rng = environment.streams.stream("earlier programs")
    if rng.random() < EARLIER_VERSION_SHARE and settings.broker.secrets is None:
        rng.choice(hosts).features = ()
        environment.trace.coverage_mark("member of an earlier program")
    return hosts


def _invariants(hosts: Sequence[BrokerHost], config: GroupConfig) -> Sequence[Invariant]:
    return [
        *raft_invariants(hosts, SeenConfigurations(config.voters)),
        DerivedFilesSound(),
        StateProofs(),
    ]


WHOLE_BROKERS = GroupKind(
    segment_sizes=(4_096, 20_480, 102_400),
    faults=BROKER_FAULTS,
    drawn_faults=DRAWN_FOR_BROKERS,
    raft_config=_raft_config,
    hosts=_hosts,
    invariants=_invariants,
    # Acknowledged messages are checked on a majority of the hosts.
    members_away_max=lambda _hosts: 1,
)
