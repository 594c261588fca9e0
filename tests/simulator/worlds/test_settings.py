"""The world of the default profile: fewer entries than elsewhere, and still a workload."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.faults.injector import FaultPlan
from simulator.runs.profiles import PROFILES
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import Messages
from simulator.worlds.registry import BURSTS, CALM, WORLDS, Run
from simulator.worlds.runner import play
from simulator.worlds.settings import CALM as CALM_SETTINGS

SECONDS = 6.0
OPERATIONS_MIN = 20
"""A second: messages sent and delivered, offsets and topics written and read."""

REGISTERS_MIN = 3
"""A second, of those: offsets and topics."""


@pytest.mark.minutes
def test_calm_clients_have_a_workload_still() -> None:
    """Repeat it with ``Run(SEED, world=CALM, seconds=6.0, plan=plan).play()``."""
    calm = (CALM_SETTINGS.client_bursts, CALM_SETTINGS.consumer_config)
    for world in PROFILES["default"].worlds:
        settings = WORLDS[world].settings
        assert (settings.client_bursts, settings.consumer_config) == calm
    operations = registers = 0
    seeds = range(1, 4)
    for seed in seeds:
        cluster = Run(seed, world=CALM, plan=FaultPlan((), 1.0)).cluster()
        outcome = play(cluster, lambda made: made.run(SECONDS))
        assert outcome.violation is None
        messages = cluster.workload(Messages)
        registers += len(messages.registers.operations)
        operations += messages.history.operations + len(messages.registers.operations)
    assert operations >= OPERATIONS_MIN * SECONDS * len(seeds)
    assert registers >= REGISTERS_MIN * SECONDS * len(seeds)


def test_requests_of_one_instant_share_entries() -> None:
    """Repeat it with ``Run(1, world=BURSTS, seconds=3.0, plan=plan).play()``."""
    outcome = Run(1, world=BURSTS, seconds=3.0, plan=FaultPlan((), 1.0)).play()
    assert outcome.violation is None
    assert outcome.marks["entry of many messages"]


def test_a_consumer_that_is_to_leave_as_it_starts_commits_nothing_later() -> None:
    """Seed 997: who was not there yet when it was closed went on, and committed 3 seconds later."""

    async def script(made: Cluster[Any]) -> None:
        consuming = made.workload(Messages)._consuming
        made.start_clients()
        for name, client in consuming.items():
            (client_host,) = made.client_hosts_named(name)
            assert client_host.process is not None
            client_host.process.run(client.close, client_host)
        await made.pass_time(1.0)
        assert [client._consumer for client in consuming.values()] == [None, None]

    outcome = play(Run(1, world=CALM, plan=FaultPlan((), 1.0)).cluster(), script)
    assert outcome.violation is None
