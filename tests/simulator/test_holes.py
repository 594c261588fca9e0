"""Nodes whose log has holes: bytes that rotted, or that the disk cannot read.

A run that breaks a promise, or does not get there, raises another error than an assertion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.faults.disk_damage import lose_unapplied
from simulator.hosts.disk_host import DIRECTORY
from simulator.hosts.durable_state import LOG_DIRECTORY, checkpoint_end, durable_mark
from simulator.hosts.host import Host
from simulator.worlds.cluster import Cluster
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import BROKERS, Run
from simulator.worlds.runner import play
from store.index_rebuild import request_rebuild
from store.log.entry import Entry
from store.log.layout import segment_name, segment_start
from tests.simulator.hosts.test_host import Script, client_of, leader_of, others

WAITS_SECONDS = 40.0
"""In virtual time: longer than any election, back-off or pass of the scrub."""

BEHIND_BYTES = 1500
"""Of entries behind the newest checkpoint: some of them at least."""


def played(cluster: Cluster[Any], script: Script) -> Outcome:
    """Raises ``RuntimeError`` where a promise was broken, or an assertion failed on the way.

    The cluster has a schedule of its own, an empty one: who is down stays so until healing.
    """
    outcome = play(cluster, script)
    if outcome.violation is not None:
        raise RuntimeError(outcome.violation)
    return outcome


def behind_checkpoint(host: Host) -> int:
    """Bytes that a start must read: behind the newest checkpoint, and below the mark."""
    mark, begin = durable_mark(host), checkpoint_end(host)
    return 0 if mark is None or begin == 0 else mark.position - begin


async def with_unapplied(cluster: Cluster[Any]) -> list[Entry]:
    """Starts all; what is committed once each disk has a checkpoint, and entries behind it."""
    for host in cluster.hosts:
        host.start()
    await cluster.until(lambda: cluster.leader() is not None, "a leader is elected")
    client_of(cluster).start()
    await cluster.until(
        lambda: all(behind_checkpoint(host) > BEHIND_BYTES for host in cluster.hosts),
        "there is something behind every checkpoint",
    )
    node = leader_of(cluster).node
    assert node is not None
    return node.store.read_entries(0, node.core.commit_index, 1 << 30)


def unapplied(host: Host, entries: list[Entry]) -> list[Entry]:
    """Those behind the newest checkpoint, and below the mark."""
    mark, begin = durable_mark(host), checkpoint_end(host)
    assert mark is not None
    return [entry for entry in entries if begin <= entry.position and entry.index <= mark.index]


def rot(host: Host, entry: Entry, *, unreadable: bool = False) -> None:
    """A bit of its body's CRC is another, or it cannot be read, on a machine that is down."""
    start = segment_start(entry.position, host.segment_size)
    path = f"{LOG_DIRECTORY}/{segment_name(start)}"
    host.note_damage()
    if unreadable:
        host.fs.lose_sector(path, entry.position - start, entry.size)
    else:
        host.fs.flip_bit(path, entry.position - start + 40)


async def comes(cluster: Cluster[Any], reached: Callable[[], bool]) -> bool:
    """Whether it comes to that, while some hosts may stay down."""
    end = cluster.loop.time() + WAITS_SECONDS
    while not reached() and cluster.loop.time() < end:
        await cluster.pass_time(0.1)
    return reached()


async def settle(cluster: Cluster[Any]) -> None:
    client_of(cluster).stop()
    await cluster.heal()


@pytest.mark.parametrize("seed", [1, 2, 5, 6])
@pytest.mark.parametrize("size", [1, 9000])
def test_what_cannot_be_read_behind_the_checkpoint_is_put_back_by_the_peers(
    seed: int, size: int
) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        await with_unapplied(cluster)
        host = others(cluster, leader_of(cluster))[0]
        lose_unapplied(cluster, host, seed / 7, size)
        host.start()
        await cluster.until(lambda: host.node is not None, "it is back")
        await settle(cluster)

    marks = played(Run(seed, schedule=()).cluster(), script).marks
    assert marks["sector behind the checkpoint cannot be read"] == 1
    assert marks["damage repaired before the node started"] == 1


@pytest.mark.minutes
@pytest.mark.parametrize("unreadable", [False, True], ids=["rotted", "unreadable"])
def test_a_pending_rebuild_keeps_no_node_from_running_and_peers_give_back_what_it_lacked(
    unreadable: bool,
) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        def strike() -> None:
            host = cluster.hosts[1]
            assert host.node is not None
            (entry,) = host.node.store.read_entries(3, 3, 1)
            host.crash()
            assert entry.end < checkpoint_end(host)
            rot(host, entry, unreadable=unreadable)
            request_rebuild(host.fs, DIRECTORY)
            host.start()

        cluster.loop.call_at(3.0, strike)
        await cluster.run(4.0)
        host = cluster.hosts[1]
        assert not host.fs.exists(f"{DIRECTORY}/state/rebuild")
        assert host.node is not None
        assert any(told.startswith("entry 3: ") for told in host.node.scrubber.repaired)

    outcome = played(Run(1, world=BROKERS, schedule=()).cluster(), script)
    assert "damage repaired before the node started" not in outcome.marks


def test_two_of_three_that_each_have_what_the_other_lacks_go_on_without_the_third() -> None:
    served: list[bool] = []

    async def script(cluster: Cluster[Any]) -> None:
        entries = await with_unapplied(cluster)
        client_of(cluster).stop()
        for host in cluster.hosts:
            host.crash()
        one, other, third = cluster.hosts
        lacks = [entry for entry in unapplied(one, entries) if entry in unapplied(other, entries)]
        rot(one, lacks[1])
        rot(other, lacks[2])
        one.start()
        other.start()
        served.append(await comes(cluster, lambda: cluster.leader() is not None))
        third.start()
        await settle(cluster)

    played(Run(1, schedule=()).cluster(), script)
    assert served == [True]


@pytest.mark.parametrize("applied", [False, True], ids=["unapplied", "applied, and no entry index"])
def test_a_node_that_lacks_what_all_have_given_up_is_refilled(applied: bool) -> None:
    opened: list[bool] = []

    async def script(cluster: Cluster[Any]) -> None:
        entries = await with_unapplied(cluster)
        away = others(cluster, leader_of(cluster))[0]
        away.crash()
        lacks = entries[3] if applied else unapplied(away, entries)[1]
        rot(away, lacks)
        if applied:
            assert lacks.end < checkpoint_end(away)
            for path in [path for path in away.fs.files() if "/index/" in path]:
                away.fs.vanish(path)
        await given_up(cluster, away, lacks.index)
        away.start()
        opened.append(await comes(cluster, lambda: away.node is not None))
        await settle(cluster)

    outcome = played(Run(1, schedule=()).cluster(), script)
    assert opened == [True]
    assert outcome.marks["damage repaired before the node started"] == 1
    assert outcome.marks["refilled by a peer"] >= 1


async def given_up(cluster: Cluster[Any], away: Host, index: int) -> None:
    """All others begin their logs behind that entry."""

    def gone() -> bool:
        nodes = [host.node for host in others(cluster, away)]
        return all(node is not None and node.store.first_index > index for node in nodes)

    for _ in range(60):
        for host in others(cluster, away):
            host.expire()
        await cluster.pass_time(1.0)
        if gone():
            return
    raise RuntimeError("nothing was given up")
