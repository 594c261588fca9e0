"""A state that is given up for the leader's checkpoint."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dledger.errors import StateDivergedError
from dledger.node.node import Node
from dledger.node.state_divergence import PAUSE_SECONDS
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.wire.service_messages import CheckpointResponse
from store.log.entry import Entry, EntryKind, build_entry
from store.state.checkpoint import Checkpoint, encode_checkpoint
from tests.dledger.node.test_applier import Leader, follow, next_entry
from tests.support.fake_executor import FakeExecutor

LEADER_TERM = 3
HEARTBEAT_SECONDS = 0.1


def test_the_terms_of_entries_that_the_leader_has_expired_stay_known() -> None:
    """Else this node could give nobody the entries, and would take them for another's."""

    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        first = next_entry(node)
        last = build_entry(EntryKind.DATA, 2, LEADER_TERM, first.end, first.chain_crc, [b"2"])
        node.driver.on_message("n1", AppendRequest(LEADER_TERM, 0, 1, 2, (first, last)))
        node.state_divergence.cannot_follow(3, "nobody repairs what it needs")
        checkpoint = Checkpoint(
            index=2,
            end_position=last.end,
            chain_crc=last.chain_crc,
            term=LEADER_TERM,
            term_starts=((LEADER_TERM, 2),),
            commit_index=2,
            state=b"",
        )
        data = encode_checkpoint(checkpoint)
        for _ in range(int(2 * PAUSE_SECONDS / HEARTBEAT_SECONDS)):
            node.driver.on_message("n1", Heartbeat(LEADER_TERM, 2))
            for asked in leader.checkpoint_requests:
                answer = CheckpointResponse(asked.number, 2, 2, first.end, len(data), 0, data)
                node.driver.on_message("n1", answer)
            await asyncio.sleep(HEARTBEAT_SECONDS)
        assert isinstance(node.failure, StateDivergedError)
        starts = ((1, 0), (LEADER_TERM, 2))
        assert node.store.checkpoints.newest == replace(checkpoint, term_starts=starts)

    follow(script)
