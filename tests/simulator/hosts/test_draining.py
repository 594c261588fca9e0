"""A broker that is stopped in order ends when its clients have gone, and they go at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from broker.client.route.route_cache import Routes
from broker.config.node_config import NodeConfig
from simulator.hosts.broker_host import BrokerHost
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import Messages
from simulator.worlds.registry import BROKERS, Run
from simulator.worlds.runner import play
from tests.simulator.hosts.test_host import CALM, leader_of

SEED = 3
"""The leader that is stopped is the preferred one."""

ENDS_SECONDS = 3.0
"""Less than a held pull takes, and much less than until clients ask for routes by themselves."""

ALL = ("p0", "p1", "c0", "c1")


def stopped(monkeypatch: pytest.MonkeyPatch, drain_seconds: int, staying: Collection[str]) -> float:
    """How long the leader takes to end, with only these clients. Every promise is kept."""
    config, took = BrokerHost._config, []

    def changed(host: BrokerHost) -> NodeConfig:
        return replace(config(host), drain_seconds=drain_seconds)

    monkeypatch.setattr(BrokerHost, "_config", changed)

    async def script(cluster: Cluster[Any]) -> None:
        for host in cluster.hosts:
            host.start()
        cluster.start_clients()
        await cluster.pass_time(8.0)
        for client in cluster.workload(Messages).client_hosts:
            if client.name not in staying:
                client.crash()
        await cluster.pass_time(0.5)
        leader = leader_of(cluster)
        assert leader.node is not None
        assert leader.node.core.config.preferred_leader == leader.name
        began, boot = cluster.loop.time(), leader.boot
        leader.stop()
        await cluster.until(lambda: leader.process is None or leader.boot > boot, "it has ended")
        took.append(cluster.loop.time() - began)
        cluster.stop_clients()
        await cluster.heal()

    trace: list[str] = []
    outcome = play(Run(SEED, world=BROKERS, plan=CALM).cluster(trace.append), script)
    assert outcome.violation is None, "\n".join(trace[-50:])
    return took[0]


@pytest.mark.minutes
@pytest.mark.parametrize("staying", [("c0", "c1"), ("p0", "p1"), ALL], ids="/".join)
def test_a_leader_that_stops_waits_only_until_its_clients_know_the_next_one(
    staying: Collection[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stopped(monkeypatch, 35, staying) < ENDS_SECONDS


@pytest.mark.minutes
def test_a_preferred_leader_that_stops_does_not_get_the_leadership_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clients stay, as those of RocketMQ do. It has left the NameServers, which would name no
    leader."""
    monkeypatch.setattr(Routes, "_leave_later", lambda _routes: None)
    assert stopped(monkeypatch, 8, ALL) >= 8
