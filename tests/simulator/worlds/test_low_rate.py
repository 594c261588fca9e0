"""The world of the default profile: fewer entries than elsewhere, and still a workload."""

from __future__ import annotations

from simulator.faults.injector import FaultPlan
from simulator.runs.profiles import PROFILES
from simulator.worlds.bursts import BurstsCluster
from simulator.worlds.low_rate import LowRateCluster
from simulator.worlds.raft_cluster import Cluster
from simulator.worlds.registry import WORLDS
from simulator.worlds.runner import play

SECONDS = 6.0
OPERATIONS_MIN = 20
"""A second: messages sent and delivered, offsets and topics written and read."""

REGISTERS_MIN = 3
"""A second, of those: offsets and topics."""


def test_calm_clients_have_a_workload_still() -> None:
    """Repeat it with ``play(LowRateCluster(SEED, plan=plan), lambda made: made.run(6.0))``."""
    assert all(issubclass(WORLDS[world], LowRateCluster) for world in PROFILES["default"].worlds)
    operations = registers = 0
    seeds = range(1, 4)
    for seed in seeds:
        cluster = LowRateCluster(seed, plan=FaultPlan((), 1.0))
        outcome = play(cluster, lambda made: made.run(SECONDS))
        assert outcome.violation is None
        registers += len(cluster.registers.operations)
        operations += cluster.history.operations + len(cluster.registers.operations)
    assert operations >= OPERATIONS_MIN * SECONDS * len(seeds)
    assert registers >= REGISTERS_MIN * SECONDS * len(seeds)


def test_requests_of_one_instant_share_entries() -> None:
    """Repeat it with ``play(BurstsCluster(1, plan=plan), lambda made: made.run(3.0))``."""
    outcome = play(BurstsCluster(1, plan=FaultPlan((), 1.0)), lambda made: made.run(3.0))
    assert outcome.violation is None
    assert outcome.marks["entry of many messages"]


def test_a_consumer_that_is_to_leave_as_it_starts_commits_nothing_later() -> None:
    """Seed 997: who was not there yet when it was closed went on, and committed 3 seconds later."""

    async def script(made: Cluster) -> None:
        assert isinstance(made, LowRateCluster)
        made._start_clients()
        for client_host, client in zip(made.clients[2:4], made._consuming, strict=True):
            assert client_host.process is not None
            client_host.process.run(client.close, client_host)
        await made.pass_time(1.0)
        assert [client._consumer for client in made._consuming] == [None, None]

    outcome = play(LowRateCluster(1, plan=FaultPlan((), 1.0)), script)
    assert outcome.violation is None
