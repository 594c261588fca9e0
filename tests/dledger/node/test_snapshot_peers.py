"""What a node gives of its log, and of whom it takes another one."""

from __future__ import annotations

import asyncio

from dledger.config import RaftConfig
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.raft.raft_state import STRANGER_ELECTIONS
from dledger.wire.service_messages import (
    CheckpointRequest,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    SnapshotNeededNotice,
)
from dledger.wire.transport import Message
from tests.dledger.node.test_hostile_service_messages import LOG, TERM, Told


def told_after(begin: AppendRequest, wait: float, *messages: tuple[str, Message]) -> Told:
    """A node that follows n1, hears nothing for a while, and then these."""
    told = Told()

    async def script() -> None:
        await told.node.start()
        told.node.driver.on_message("n1", begin)
        await asyncio.sleep(wait)
        told.others.told.clear()
        for sender, message in messages:
            told.node.driver.on_message(sender, message)
        await asyncio.sleep(0.1)
        assert told.node.failure is None
        await told.node.stop()

    told.loop.run_until_complete(script())
    told.loop.close()
    assert told.unexpected == []
    return told


def test_what_is_not_known_to_be_committed_is_given_to_nobody() -> None:
    """Who repairs its log with it would take it for committed."""
    begin = AppendRequest(TERM, -1, 0, 2, tuple(LOG))
    asked = [("n2", FetchRequest(first, first, 4, PIECE_BYTES)) for first in (1, 3)]
    told = told_after(begin, 0.1, asked[0])
    [answer] = [each for _, each in told.others.told if isinstance(each, FetchResponse)]
    assert [entry.index for entry in answer.entries] == [1, 2]
    told = told_after(begin, 0.1, asked[1])
    [answer] = [each for _, each in told.others.told if isinstance(each, FetchResponse)]
    assert (answer.status, answer.entries) == (FetchStatus.MISSING, ())


def test_a_stranger_that_leads_is_asked_for_no_log() -> None:
    """Anybody may say that it leads; a member is asked instead."""
    election = RaftConfig().election_seconds
    told = told_after(
        AppendRequest(TERM, -1, 0, 4, tuple(LOG)),
        (STRANGER_ELECTIONS + 1) * election,
        ("n9", Heartbeat(TERM + 1, -1)),
        ("n9", SnapshotNeededNotice(100)),
    )
    assert told.node.core.leader == "n9"
    asked = [peer for peer, each in told.others.told if isinstance(each, CheckpointRequest)]
    assert asked == ["n1"]
