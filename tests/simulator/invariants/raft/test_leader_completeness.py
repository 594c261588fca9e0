"""What a leader must have depends on the terms in which entries were committed, not on theirs."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.violation import Violation
from simulator.invariants.raft.committed_entries import CommittedEntries
from simulator.invariants.raft.leader_completeness import LeaderCompleteness
from simulator.worlds.cluster import Cluster
from tests.simulator.hosts.test_host import run, serving, settle


def lead_without_an_entry(of_term: int, committed_after: int) -> None:
    """A leader that lacks an entry of that term, counted from its own, which was committed so many
    terms after its own began. Raises what the check says of it.
    """

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        assert leader.node is not None
        core, committed = leader.node.core, CommittedEntries()
        index = core.entry_cache.last_index + 100
        committed.entries[index] = (core.term + of_term, 0)
        committed.terms[index] = core.term + committed_after
        try:
            LeaderCompleteness(committed).stepped(leader)
        except Violation as violation:
            found.append(violation)
        await settle(cluster)

    found: list[Violation] = []
    run(script)
    if found:
        raise found[0]


def test_a_leader_has_what_was_committed_in_an_earlier_term() -> None:
    with pytest.raises(Violation, match="lacks the committed entry"):
        lead_without_an_entry(of_term=-1, committed_after=-1)


def test_a_leader_may_lack_what_a_later_one_committed_though_it_is_of_an_earlier_term() -> None:
    """Seed 40396: who was paused as it was elected heard so after the next leader had begun."""
    lead_without_an_entry(of_term=-1, committed_after=1)
