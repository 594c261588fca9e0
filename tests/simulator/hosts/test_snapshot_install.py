"""A follower that was away while its peers gave up what it lacks is refilled, whatever happens."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from dledger.node.snapshot_receiver import LOG_SECONDS, SnapshotReceiver
from simulator.engine.disk import Fault
from simulator.hosts.host import Host
from simulator.hosts.observed_host import Ending
from simulator.worlds.cluster import Cluster
from store.recovery.snapshot_install import InstallPlan, SnapshotInstall
from store.state.checkpoint import NAME_PREFIX
from tests.simulator.hosts.test_durable_state import cut_off
from tests.simulator.hosts.test_host import leader_of, others, run, serving, settle
from tests.support.search_effort import sample


def gave_up(cluster: Cluster[Any], away: Host) -> bool:
    leader: Host | None = cluster.leader()
    if leader is None or leader.node is None or away.node is None:
        return False
    return leader.node.store.first_index > away.node.core.entry_cache.last_index + 1


async def left_behind(cluster: Cluster[Any]) -> Host:
    """A follower is cut off until the others gave up what it needs next."""
    leader = await serving(cluster)
    away = others(cluster, leader)[0]
    for host in others(cluster, away):
        cluster.cut(away, host, noticed=True)
        cluster.cut(host, away, noticed=True)
    for _ in range(60):
        await cluster.pass_time(2.0)
        for host in others(cluster, away):
            host.expire()
        if gave_up(cluster, away):
            return away
    raise AssertionError("nothing was given up")


@pytest.mark.parametrize("seed", sample(range(1, 7)))
def test_a_follower_behind_the_first_retained_entry_is_refilled(seed: int) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        boot = away.boot
        cluster.heal_network()
        await settle(cluster)
        assert away.boot == boot + 1
        assert away.node is not None
        assert away.node.store.first_index > 0

    assert run(script, seed).marks["refilled by a peer"] == 1


@pytest.mark.parametrize("seed", sample(range(1, 5)))
def test_retention_that_goes_on_during_a_refill_does_not_keep_it_from_ending(seed: int) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        cluster.heal_network()
        for _ in range(10):
            await cluster.pass_time(0.2)
            for host in others(cluster, away):
                host.expire()
        await settle(cluster)

    assert run(script, seed).marks["refilled by a peer"] >= 1


GATHERED_FROM = 13  # file calls after which a part of the refill is on the disk
DEATHS = ("power fails within a file call", "process dies within a file call")


@pytest.mark.parametrize("calls", sample(range(1, 27, 4)))
def test_a_follower_that_dies_while_it_is_refilled_is_refilled_in_the_end(calls: int) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        away.lose_power() if calls % 2 else away.crash()
        cluster.heal_network()
        await cluster.until(lambda: away.node is not None, "it is started again")
        away.end_within_a_call(Ending.POWER_LOSS if calls % 3 else Ending.CRASH, calls)
        marks = cluster.trace.marks
        await cluster.until(lambda: any(death in marks for death in DEATHS), "it dies")
        await settle(cluster)

    outcome = run(script, 1 + calls % 5)
    assert outcome.marks["refilled by a peer"] >= 1
    if calls >= GATHERED_FROM:
        assert outcome.marks["started in the middle of a refill"] >= 1


def test_a_disk_that_fills_up_at_the_end_of_a_refill_stops_nobody() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        boot = away.boot
        full = Fault(1, errno.ENOSPC, operations={"pwrite"}, path="/refill/complete")
        away.fs.inject(full)
        cluster.heal_network()
        await cluster.until(lambda: full.hit, "the disk is full")
        await settle(cluster)
        assert away.boot > boot + 1

    assert run(script, 1).marks["refilled by a peer"] >= 1


@pytest.mark.minutes
def test_while_a_disk_is_full_a_node_goes_on_with_the_log_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        boot, node = away.boot, away.node
        assert node is not None
        looks = 0

        def full(_refill: SnapshotInstall) -> bool:
            nonlocal looks
            looks += 1
            return False

        with monkeypatch.context() as patched:
            patched.setattr(SnapshotInstall, "may_complete", property(full))
            cluster.heal_network()
            await cluster.pass_time(20.0)
            assert looks > 5
            assert node.alive
        assert away.boot == boot
        await settle(cluster)
        assert away.boot == boot + 1

    assert run(script, 1).marks["refilled by a peer"] == 1


@pytest.mark.minutes
def test_a_node_that_finds_no_room_at_the_end_of_a_refill_is_not_opened_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time clients and peers lose it, and it reads all that was gathered."""

    def complete(refill: SnapshotInstall, _floor: int) -> None:
        refill.close()
        raise OSError(errno.ENOSPC, "No space left on device")

    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        boot = away.boot
        with monkeypatch.context() as patched:
            patched.setattr(SnapshotInstall, "complete", complete)
            cluster.heal_network()
            await cluster.pass_time(5 * LOG_SECONDS)
        assert 1 < away.boot - boot <= 5
        await settle(cluster)

    assert run(script, 1).marks["refilled by a peer"] >= 1


def test_the_leader_may_change_while_a_follower_is_refilled() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        away = await left_behind(cluster)
        cluster.heal_network()
        assert away.node is not None
        snapshot_receiver: SnapshotReceiver = away.node.snapshot_receiver
        await cluster.until(lambda: snapshot_receiver.progress is not None, "the refill begins")
        leader_of(cluster).crash()
        await settle(cluster)

    assert run(script).marks["refilled by a peer"] == 1


def newest_checkpoint(host: Host) -> tuple[InstallPlan, bytes]:
    """A refill up to it, and its file."""
    assert host.node is not None
    store = host.node.store
    newest = store.checkpoints.newest
    assert newest is not None
    path = f"/data/state/{NAME_PREFIX}{newest.index:020d}"
    return InstallPlan(*store.beginning(), newest.index), host.fs.visible_bytes(path)


def is_gathered(host: Host) -> bool:
    """Whether a part of a refill is on the disk."""
    return host.fs.exists("/data/refill")


def test_a_refill_is_removed_once_the_own_log_has_caught_up() -> None:
    """Its leader went, and the next one has all that the follower lacks: no notice comes."""

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        away = others(cluster, leader)[0]
        node = away.node
        assert node is not None
        assert leader.node is not None
        cut_off(cluster, away)
        committed, checkpoints = node.core.commit_index, leader.node.store.checkpoints
        await cluster.until(
            lambda: checkpoints.newest is not None and checkpoints.newest.index > committed,
            "a checkpoint is ahead",
        )
        plan, data = newest_checkpoint(leader)
        begun = node.store.begin_snapshot_install(plan, data, node.core.term)
        node.snapshot_receiver._install = begun
        await cluster.pass_time(5.0)
        assert is_gathered(away)
        cluster.heal_network()
        await cluster.until(lambda: not is_gathered(away), "it is removed")
        assert node.snapshot_receiver.progress is None
        assert node.core.commit_index >= plan.checkpoint_index
        await settle(cluster)
        assert away.node is node

    run(script)


@pytest.mark.parametrize("removed", [(), ("plan",)], ids=["whole", "half removed"])
def test_a_refill_of_an_earlier_process_that_is_not_needed_is_removed(
    removed: tuple[str, ...],
) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        host = others(cluster, leader)[0]
        assert leader.node is not None
        checkpoints = leader.node.store.checkpoints
        await cluster.until(lambda: checkpoints.newest is not None, "there is a checkpoint")
        plan, data = newest_checkpoint(leader)
        assert host.node is not None
        host.node.store.begin_snapshot_install(plan, data, leader.node.core.term)
        for name in removed:
            host.fs.vanish(f"/data/refill/{name}")
        host.crash()
        await cluster.until(lambda: host.node is not None, "it is started again")
        await cluster.until(lambda: not is_gathered(host), "it is removed")
        assert host.node is not None
        assert host.node.snapshot_receiver.progress is None
        await settle(cluster)

    assert "refilled by a peer" not in run(script).marks
