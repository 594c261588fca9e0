"""A member takes the leader's checkpoint in the place of its own state."""

from __future__ import annotations

from typing import Any

from simulator.worlds.cluster import Cluster
from tests.simulator.hosts.test_host import leader_of, others, restarted, run, serving, settle


def test_a_member_with_the_leaders_checkpoint_knows_the_terms_of_its_own_longer_log() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        first = await serving(cluster)
        first.crash()
        await cluster.until(lambda: cluster.leader() not in (None, first), "another leads")
        first.start()
        leader = leader_of(cluster)
        host = others(cluster, leader)[0]
        assert leader.node is not None
        core, store, checkpointer = leader.node.core, leader.node.store, leader.node.checkpointer

        def gave_up_a_term() -> bool:
            checkpointer.checkpoint()
            checkpointer.expire(core.entry_cache.end_position)
            return store.first_index > core.entry_cache.term_starts(store.last_index)[0][1] > 0

        await cluster.until(gave_up_a_term, "the leader gives up what its first term held")
        assert host.node is not None
        before, boot = host.node.core.entry_cache, host.boot
        assert before.first_index == 0
        host.node.state_divergence.cannot_follow(host.node.applied_index + 1, "for this test")
        await cluster.until(lambda: restarted(host, boot), "it begins with that checkpoint")
        after = host.node.core.entry_cache
        assert after.first_index == 0
        same = before.last_index
        assert after.term_starts(same) == before.term_starts(same)
        await settle(cluster)

    run(script)
