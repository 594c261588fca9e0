"""What rots on one disk is found by the scrub and put back from a peer; nobody notices."""

from __future__ import annotations

from random import Random

import pytest

from dledger.standing import Role
from simulator.cluster import Cluster
from simulator.host import DIRECTORY, Host
from store.layout import segment_name, segment_start
from tests.simulator.test_host import others, run, serving, settle


def rot(host: Host, index: int, byte: int) -> None:
    """Flips a bit of an entry at rest."""
    assert host.node is not None
    position = host.node.store.position_of(index)
    start = segment_start(position, host.segment_size)
    path = f"{DIRECTORY}/commitlog/{segment_name(start)}"
    host.fs.flip_bit(path, position - start + byte, byte % 8)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_rotten_entry_is_mended_from_a_peer_on_followers_and_on_the_leader(seed: int) -> None:
    rng = Random(seed)

    async def script(cluster: Cluster) -> None:
        leader = await serving(cluster)
        await cluster.pass_time(2.0)
        host = leader if seed % 3 == 0 else others(cluster, leader)[0]
        assert host.node is not None
        scrubber = host.node.scrubber
        for index in sorted(rng.sample(range(host.node.core.commit_index), 3)):
            rot(host, index, rng.randrange(48))
        await cluster.until(lambda: len(scrubber.mended) >= 3, "the damage is mended")
        assert not scrubber.damage
        await settle(cluster)

    run(script, seed)


def test_a_node_with_damage_does_not_campaign_until_it_is_whole() -> None:
    async def script(cluster: Cluster) -> None:
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
        assert not node.fitness.report.whole
        await cluster.pass_time(3.0)
        assert node.core.role is Role.FOLLOWER
        assert not node.core.elections.campaigns
        cluster.heal_network()
        await cluster.until(lambda: not node.scrubber.damage, "the damage is mended")
        await cluster.pass_time(1.0)
        assert node.core.elections.campaigns
        await settle(cluster)

    run(script)
