"""What rots on one disk is found by the scrub and put back from a peer; nobody notices."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dledger.raft.raft_state import Role
from simulator.hosts.disk_host import DIRECTORY
from simulator.hosts.host import Host
from simulator.worlds.cluster import Cluster
from store.errors import OutOfDescriptorsError, OutOfRangeError, StoreError
from store.log.entry_repair import CheckedRange
from store.log.layout import segment_name, segment_start
from store.replica import ReplicaStore
from tests.simulator.hosts.test_host import others, restarted, run, serving, settle
from tests.support.search_effort import sample


def rot(host: Host, index: int, byte: int) -> None:
    """Flips a bit of an entry at rest."""
    assert host.node is not None
    position = host.node.store._index.row(index).position
    start = segment_start(position, host.segment_size)
    path = f"{DIRECTORY}/commitlog/{segment_name(start)}"
    host.fs.flip_bit(path, position - start + byte, byte % 8)


@pytest.mark.parametrize("seed", sample(range(1, 9)))
def test_a_rotten_entry_is_repaired_from_a_peer_on_followers_and_on_the_leader(seed: int) -> None:
    rng = Random(seed)

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        await cluster.pass_time(2.0)
        host = leader if seed % 3 == 0 else others(cluster, leader)[0]
        assert host.node is not None
        scrubber = host.node.scrubber
        for index in sorted(rng.sample(range(host.node.core.commit_index), 3)):
            rot(host, index, rng.randrange(48))
        await cluster.until(lambda: len(scrubber.repaired) >= 3, "the damage is repaired")
        assert not scrubber.damage
        await settle(cluster)

    run(script, seed)


def test_a_node_with_damage_does_not_campaign_until_it_is_whole() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        await cluster.pass_time(1.0)
        host = others(cluster, leader)[0]
        assert host.node is not None
        for other in others(cluster, host):
            cluster.cut(host, other, noticed=True)
            cluster.cut(other, host, noticed=True)
        rot(host, 1, 20)
        node = host.node
        await cluster.until(lambda: bool(node.scrubber.damage), "the damage is found")
        assert not node.health.report.whole
        await cluster.pass_time(3.0)
        assert node.core.role is Role.FOLLOWER
        assert not node.core.campaigns
        cluster.heal_network()
        await cluster.until(lambda: not node.scrubber.damage, "the damage is repaired")
        await cluster.pass_time(1.0)
        assert node.core.campaigns
        await settle(cluster)

    run(script)


def test_an_entry_that_all_others_gave_up_holds_up_no_other_one() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        host = others(cluster, leader)[0]
        assert host.node is not None
        scrubber, store = host.node.scrubber, host.node.store
        peers = [each.node for each in others(cluster, host) if each.node is not None]
        assert len(peers) == 2

        def gave_up_some() -> bool:
            for peer in peers:
                peer.checkpointer.checkpoint()
                peer.checkpointer.expire(peer.core.entry_cache.end_position)
            return min(peer.store.first_index for peer in peers) > 1

        await cluster.until(gave_up_some, "the others give up their first entries")
        assert store.first_index == 0
        host.note_damage()
        kept = max(peer.store.first_index for peer in peers)
        await cluster.until(lambda: store.last_index > kept, "more entries come")
        rot(host, 1, 20)
        rot(host, kept + 1, 20)
        await cluster.until(lambda: len(scrubber.repaired) == 1, "one entry is repaired")
        assert list(scrubber.damage) == [1]
        assert scrubber.repaired[0].startswith(f"entry {kept + 1}: ")
        await settle(cluster)

    run(script)


@pytest.mark.minutes
def test_entries_back_to_back_are_repaired_in_their_order_whatever_was_refused_before() -> None:
    """Seed 8002371: each was asked for in turn, again and again, and only the first one could be
    put back."""

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        host = others(cluster, leader)[0]
        assert host.node is not None
        scrubber, store = host.node.scrubber, host.node.store
        await cluster.until(lambda: store.last_index > 14, "more entries come")
        host.note_damage()
        for index in range(4, 12):
            rot(host, index, 0)
            rot(host, index, 37)  # its chain CRC: the entry behind cannot be checked either
        for other in others(cluster, host):
            cluster.cut(host, other, noticed=True)
        await cluster.until(lambda: len(scrubber.damage) >= 8, "the damage is found")
        await cluster.pass_time(15.0)
        assert not scrubber.repaired
        cluster.heal_network()
        await cluster.pass_time(4.0)
        assert not scrubber.damage
        await settle(cluster)

    run(script)


@pytest.mark.parametrize("kept", [None, 0, 100])  # bytes; None: the file is gone
def test_what_a_segment_has_lost_counts_as_damaged_from_the_start(kept: int | None) -> None:
    """It lies below the newest checkpoint, where nothing is read as the log is opened."""

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        host = others(cluster, leader)[0]
        assert host.node is not None
        before = host.node
        await checkpoint_behind_two_segments(cluster, host)
        checkpoint = before.store.recovered.checkpoint
        host.note_damage()
        host.crash()
        path = f"{DIRECTORY}/commitlog/{segment_name(0)}"
        if kept is None:
            host.fs.vanish(path)
        else:
            host.fs.cut(path, kept)
        boot = host.boot
        host.start()
        await cluster.until(lambda: restarted(host, boot), "it is opened")
        node = host.node
        assert node is not None
        assert node.store.recovered.checkpoint != checkpoint
        assert not node.health.report.whole
        assert leader.node is not None
        told = leader.node.core._health
        await cluster.until(lambda: not told.is_intact(host.name), "the leader hears of it")
        assert node.scrubber.passes == 0
        await cluster.until(lambda: node.health.report.whole, "it is repaired")
        assert len(node.scrubber.repaired) > 1
        await cluster.until(lambda: told.is_intact(host.name), "the leader hears of that")
        await settle(cluster)

    run(script)


@pytest.mark.parametrize(
    "error",
    [OutOfDescriptorsError("a file cannot be opened now"), OutOfRangeError("it has expired")],
    ids=["no descriptors", "expired meanwhile"],
)
def test_a_cut_segment_that_cannot_be_read_counts_as_damage_until_it_was_read(
    monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    def lacking(_store: ReplicaStore, _first: int, _last: int, _bytes_max: int) -> CheckedRange:
        raise error

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        host = others(cluster, leader)[0]
        await checkpoint_behind_two_segments(cluster, host)
        host.note_damage()
        host.crash()
        host.fs.cut(f"{DIRECTORY}/commitlog/{segment_name(0)}", 100)
        boot = host.boot
        with monkeypatch.context() as patched:
            patched.setattr(ReplicaStore, "check_entries", lacking)
            host.start()
            await cluster.until(lambda: restarted(host, boot), "it is opened")
            node = host.node
            assert node is not None
            await cluster.pass_time(2.5)
            assert node.scrubber.damage_summary
            assert not node.health.report.whole
        await cluster.until(lambda: node.health.report.whole, "it is repaired")
        assert node.scrubber.repaired
        await settle(cluster)

    run(script)


async def checkpoint_behind_two_segments(cluster: Cluster[Any], host: Host) -> None:
    """What lies below it is not read as the log is opened."""
    node = host.node
    assert node is not None
    await cluster.until(
        lambda: node.store.end_position > 2 * host.segment_size, "two segments are full"
    )
    node.checkpointer.checkpoint()
    await cluster.pass_time(2.0)


def test_of_much_damage_the_first_is_told_and_how_much_more_there_is() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        node = (await serving(cluster)).node
        assert node is not None
        damage = node.scrubber.damage
        damage.update({index: f"entry {index}" for index in reversed(range(100))})
        told = node.scrubber.damage_summary
        assert told[:2] == ["entry 0", "entry 1"]
        assert told[-1] == "and 80 more entries"
        assert len(told) == 21
        damage.clear()
        assert node.scrubber.damage_summary == []
        await settle(cluster)

    run(script)
