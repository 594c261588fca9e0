"""What a simulated host does to the node on it: dies, is paused, slow, full, and comes back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, TypeAlias

import pytest

from dledger.raft.raft_state import Role
from simulator.engine.disk_executor import SimulatedExecutor
from simulator.faults.injector import FaultPlan
from simulator.hosts.host import MIN_FREE_BYTES, Host
from simulator.hosts.observed_host import Ending
from simulator.workload.raft_client import RaftClient
from simulator.worlds.bare_nodes import RaftProposals
from simulator.worlds.cluster import Cluster
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import Run
from simulator.worlds.runner import play
from store.errors import FatalDiskError

CALM = FaultPlan((), 1.0)

Script: TypeAlias = Callable[[Cluster[Any]], Coroutine[object, object, None]]


def run(script: Script, seed: int = 1) -> Outcome:
    """A cluster without faults of its own goes through the script; every promise must be kept."""
    trace: list[str] = []
    outcome = play(Run(seed, plan=CALM).cluster(trace.append), script)
    assert outcome.violation is None, "\n".join([*trace[-50:], f"seed {seed}"])
    return outcome


def client_of(cluster: Cluster[Any]) -> RaftClient:
    return cluster.workload(RaftProposals).client


async def serving(cluster: Cluster[Any]) -> Host:
    """Starts all hosts, and the client once one of them serves."""
    for host in cluster.hosts:
        host.start()
    await cluster.until(lambda: cluster.leader() is not None, "a leader is elected")
    client_of(cluster).start()
    await cluster.pass_time(1.0)
    return leader_of(cluster)


def leader_of(cluster: Cluster[Any]) -> Host:
    leader: Host | None = cluster.leader()
    assert leader is not None
    return leader


def others(cluster: Cluster[Any], host: Host) -> list[Host]:
    return [other for other in cluster.hosts if other is not host]


def restarted(host: Host, boot: int) -> bool:
    return host.boot > boot and host.node is not None


async def settle(cluster: Cluster[Any]) -> None:
    client_of(cluster).stop()
    await cluster.heal()


def test_a_calm_cluster_keeps_its_first_leader() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        await serving(cluster)
        await cluster.pass_time(20.0)
        await settle(cluster)

    outcome = run(script)
    assert outcome.last_term == 1
    assert outcome.unknown == 0


def test_a_leader_that_dies_is_replaced_and_joins_again() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        leader.crash()
        await cluster.until(lambda: cluster.leader() is not None, "somebody leads again")
        await settle(cluster)

    assert run(script).last_term > 1


def test_what_was_acknowledged_survives_a_power_failure_of_all() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        await serving(cluster)
        assert client_of(cluster).acknowledged
        for host in cluster.hosts:
            host.lose_power()
        await settle(cluster)

    run(script)


def test_a_leader_that_was_paused_steps_down_and_its_open_proposals_end_as_unknown() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        leader.pause()
        while leader not in client_of(cluster).pending.values():
            client_of(cluster).propose()
        await cluster.until(
            lambda: any(
                host.node is not None and host.node.serving for host in others(cluster, leader)
            ),
            "another leads meanwhile",
        )
        leader.resume()
        await cluster.pass_time(1.0)
        assert leader.node is not None
        assert leader.node.core.role is Role.FOLLOWER
        await settle(cluster)

    outcome = run(script)
    assert outcome.unknown > 0
    assert outcome.marks["paused process resumed"] == 1


@pytest.mark.parametrize("noticed", [True, False])
def test_a_leader_cut_off_from_all_steps_down_and_a_majority_goes_on(noticed: bool) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        for other in others(cluster, leader):
            cluster.cut(leader, other, noticed=noticed)
            cluster.cut(other, leader, noticed=noticed)
        await cluster.until(lambda: cluster.leader() not in (None, leader), "another leads alone")
        await settle(cluster)

    run(script)


def test_a_follower_that_hears_nothing_and_is_heard_does_not_depose_the_leader() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        deaf = others(cluster, leader)[0]
        for other in others(cluster, deaf):
            cluster.cut(other, deaf, noticed=False)
        await cluster.pass_time(10.0)
        assert leader_of(cluster) is leader
        await settle(cluster)

    assert run(script).last_term == 1


def test_two_followers_that_do_not_hear_each_other_disturb_nobody() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        one, other = others(cluster, leader)
        cluster.cut(one, other, noticed=True)
        cluster.cut(other, one, noticed=True)
        await cluster.pass_time(10.0)
        assert leader_of(cluster) is leader
        await settle(cluster)

    assert run(script).last_term == 1


def test_a_leader_and_a_follower_that_do_not_hear_each_other_leave_one_leader_in_peace() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        follower = others(cluster, leader)[0]
        cluster.cut(leader, follower, noticed=False)
        cluster.cut(follower, leader, noticed=False)
        await cluster.pass_time(10.0)
        assert cluster.leader() is not None
        await settle(cluster)

    assert run(script).last_term <= 3


def test_a_slow_disk_changes_no_leader() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        leader.disk_slowness = 2_000.0  # up to four seconds for each job
        await cluster.pass_time(20.0)
        assert leader_of(cluster) is leader
        await settle(cluster)

    assert run(script).last_term == 1


@pytest.mark.minutes
def test_a_full_disk_stops_nobody_and_passes() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        cluster.schedule.propose("fill-disk", leader.name, 8_000)
        await cluster.pass_time(10.0)
        assert leader.boot == 1
        cluster.schedule.propose("free-disk", leader.name)
        await settle(cluster)

    outcome = run(script, seed=4)
    assert outcome.marks["refused: NoRoomError"] > 0


def test_a_full_disk_is_no_excuse_for_a_node_that_stops() -> None:
    """It may only keep one from a start."""

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        leader.fill_disk(0)
        assert leader.node is not None
        leader.node._lifecycle.fail(FatalDiskError("no room"))
        await cluster.pass_time(1.0)

    outcome = play(Run(1, plan=CALM).cluster(lambda _line: None), script)
    assert outcome.violation is not None
    assert "stops by itself: FatalDiskError('no room')" in outcome.violation


def test_a_member_that_began_on_a_full_disk_takes_the_log_once_there_is_room() -> None:
    """Seed 8021320: no entry came to the log, and nobody looked for room again."""

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        host = others(cluster, leader)[0]
        host.replace_disk()
        host.fill_disk(MIN_FREE_BYTES)
        host.start()
        await cluster.pass_time(3.0)
        assert host.node is not None
        assert host.node.store.last_index == -1
        host.free_disk()
        await settle(cluster)

    run(script)


def test_a_disk_error_ends_the_process_and_it_comes_back() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        leader.fail_a_call(1)
        await cluster.until(lambda: leader.boot > 1, "it is started again")
        await settle(cluster)

    assert run(script).marks["disk error stopped a node"] == 1


@pytest.mark.minutes
@pytest.mark.parametrize("ending", Ending)
def test_a_host_may_end_within_any_file_call_of_its_life(ending: Ending) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        await serving(cluster)
        for calls in range(1, 30):
            host = leader_of(cluster)
            host.end_within_a_call(ending, calls)
            boot = host.boot
            await cluster.until(partial(restarted, host, boot), "it is started again")
            await cluster.until(lambda: cluster.leader() is not None, "somebody leads")
        await settle(cluster)

    assert run(script).marks[f"{ending.value} within a file call"] == 29


def test_a_node_that_is_stopped_in_order_starts_without_replay() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        await serving(cluster)
        client_of(cluster).stop()
        await cluster.pass_time(1.0)
        follower = others(cluster, leader_of(cluster))[0]
        assert follower.node is not None
        applied = follower.node.applied_index
        follower.stop()
        await cluster.until(lambda: follower.boot > 1 and follower.node is not None, "restart")
        checkpoint = follower.node.store.recovered.checkpoint
        assert checkpoint is not None
        assert checkpoint.index == applied
        await settle(cluster)

    run(script)


def test_what_queued_up_at_a_slow_disk_goes_fast_once_that_is_fast_again() -> None:
    """Seed 3615 of ``nightly``: a follower waited for a read for half a minute after the disk had
    come to itself."""

    async def script(cluster: Cluster[Any]) -> None:
        host = await serving(cluster)
        assert host.process is not None
        lane = SimulatedExecutor(cluster.loop, Random(1), host, host.process)
        done: list[int | None] = []
        host.slow_disk(300.0)
        for number in range(50):
            lane.submit(partial(abs, number), lambda result, _: done.append(result))
        await cluster.pass_time(2.0)
        assert 0 < len(done) < 20
        host.slow_disk(1.0)
        await cluster.pass_time(1.0)
        assert done == list(range(50))
        await settle(cluster)

    run(script)
