"""Groups of bare Raft nodes with their stores, and the client that proposes to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.config import RaftConfig
from simulator.engine.random_streams import CountingRandom
from simulator.faults.kinds import DRAWN_FOR_NODES, NODE_FAULTS
from simulator.hosts.host import Host
from simulator.hosts.observed_host import Environment, GroupConfig
from simulator.invariants import Invariant, SeenConfigurations, raft_invariants
from simulator.invariants.raft.acknowledged_durability import AcknowledgedIsDurable
from simulator.workload.raft_client import RaftClient
from simulator.worlds.cluster import Cluster
from simulator.worlds.group import GroupKind
from simulator.worlds.settings import WorldSettings
from simulator.worlds.workload import Workload
from store.log.entry import HEADER_SIZE
from store.log.layout import entry_size_max


def small_limits(rng: CountingRandom, _settings: WorldSettings) -> RaftConfig:
    """Small limits, which runs reach within seconds."""
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


def _hosts(
    config: GroupConfig,
    environment: Environment,
    _settings: WorldSettings,
    ended: Callable[[Host], None],
) -> Sequence[Host]:
    return [
        Host(name, group=config, environment=environment, ended=ended) for name in config.voters
    ]


def _invariants(hosts: Sequence[Host], config: GroupConfig) -> Sequence[Invariant]:
    seen = SeenConfigurations(config.voters)
    return [*raft_invariants(hosts, seen), AcknowledgedIsDurable(hosts, seen)]


BARE_NODES = GroupKind(
    segment_sizes=(700, 2_000, 20_480),
    faults=NODE_FAULTS,
    drawn_faults=DRAWN_FOR_NODES,
    raft_config=small_limits,
    hosts=_hosts,
    invariants=_invariants,
    members_away_max=lambda hosts: (hosts - 1) // 2,
)


class RaftProposals(Workload):
    """A client that proposes to the nodes themselves."""

    def __init__(self, cluster: Cluster[Host]) -> None:
        super().__init__()
        rng = cluster.rng
        self._cluster = cluster
        self._last_proposed: int | None = None
        self.client = RaftClient(
            cluster.loop,
            cluster.streams.stream("client"),
            cluster.hosts,
            payload_max=entry_size_max(cluster.group.segment_size) - HEADER_SIZE,
            burst_max=rng.choice((1, 3, 10)),
            pause_max=rng.choice((0.05, 0.1, 0.5)),
        )

    def start(self) -> None:
        """See :class:`Workload`."""
        self.client.start()

    def stop(self) -> None:
        """See :class:`Workload`."""
        self.client.stop()

    def process_ended(self, host: Host) -> None:
        """See :class:`Workload`."""
        self.client.process_ended(host)

    def open_calls(self) -> int:
        """See :class:`Workload`."""
        return len(self.client.pending)

    def counts(self) -> tuple[int, int]:
        """See :class:`Workload`."""
        return len(self.client.acknowledged), len(self.client.unknown)

    async def heal(self) -> None:
        """Checks that every call ends, and that a new one is answered."""
        cluster = self._cluster
        await cluster.until(lambda: not cluster.open_calls(), "every call ends")
        await cluster.until(self._is_acknowledged, "a new proposal commits")

    def _is_acknowledged(self) -> bool:
        """Proposes until a proposal after the faults is acknowledged."""
        if self.client.pending:
            return False
        if self._last_proposed in self.client.acknowledged:
            return True
        self._last_proposed = self.client.propose()
        return False
