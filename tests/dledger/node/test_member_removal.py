"""A node that was removed from its group while it was away, and what the word of peers can do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from broker.server.decommissioning import Decommissioning
from dledger.raft.configuration import Configuration
from dledger.raft.messages import AppendRequest, Heartbeat, VoteRequest, VoteResponse
from dledger.wire.service_messages import RemovedNotice
from dledger.wire.transport import Message
from simulator.engine.event_loop import VirtualLoop
from store.log.entry import EntryKind, build_entry
from tests.dledger.node.member import Member, Peers

REMOVED_AT = 40


class Deaf(Peers):
    """Peers that have a leader of their own and vote for nobody; they say what they are told to."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.sent: list[tuple[str, Message]] = []

    def send(self, peer: str, message: Message) -> None:
        self.sent.append((peer, message))
        super().send(peer, message)

    def _answer(self, peer: str, message: Message) -> None:
        if isinstance(message, VoteRequest) and self._handler is not None:
            self.vote_requests += 1
            self._handler.on_message(peer, VoteResponse(0, False, message.pre_vote))


@pytest.fixture
async def member(loop: VirtualLoop) -> AsyncIterator[Member]:
    """Nobody votes for it."""
    member = Member(loop, Deaf(loop))
    await member.node.start()
    yield member
    await member.node.stop()
    assert member.node.failure is None


async def asked_in(member: Member, seconds: float) -> int:
    before = member.peers.vote_requests
    await asyncio.sleep(seconds)
    return member.peers.vote_requests - before


def lines_of(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [line for line in caplog.messages if what in line]


async def test_a_node_that_cannot_be_elected_logs_it_once(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert await asked_in(member, 100) > 50
    assert len(caplog.messages) < 5


async def test_a_node_that_a_majority_calls_removed_asks_for_votes_seldom_and_says_so_once(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.sleep(5)
    for _ in range(3):
        for peer in ("n1", "n2"):
            member.node.driver.on_message(peer, RemovedNotice(REMOVED_AT))
    assert not member.node.removal.is_member
    await asyncio.sleep(100)
    assert await asked_in(member, 1000) < 2 * 1000 / 35
    assert len(lines_of(caplog, "was removed")) == 1


async def test_the_word_of_one_peer_or_of_a_stranger_changes_nothing(member: Member) -> None:
    for peer in ("n1", "n1", "n7", "n8"):
        member.node.driver.on_message(peer, RemovedNotice(REMOVED_AT))
    assert member.node.removal.is_member
    assert await asked_in(member, 100) > 50


async def test_who_holds_the_entry_that_is_named_goes_by_its_log(member: Member) -> None:
    for peer in ("n1", "n2"):
        member.node.driver.on_message(peer, RemovedNotice(member.node.core.commit_index))
    assert member.node.removal.is_member
    assert await asked_in(member, 100) > 50


async def test_a_node_that_hears_a_leader_again_is_as_it_was(member: Member) -> None:
    for peer in ("n1", "n2"):
        member.node.driver.on_message(peer, RemovedNotice(REMOVED_AT))
    await asyncio.sleep(200)
    member.node.driver.on_message("n1", Heartbeat(1, -1))
    assert member.node.removal.is_member
    assert await asked_in(member, 100) > 50


async def test_while_a_leader_is_heard_nobody_else_is_believed(member: Member) -> None:
    member.node.driver.on_message("n1", Heartbeat(1, -1))
    for peer in ("n1", "n2"):
        member.node.driver.on_message(peer, RemovedNotice(REMOVED_AT))
    for _ in range(20):
        assert member.node.removal.is_member
        await asyncio.sleep(0.1)
        member.node.driver.on_message("n1", Heartbeat(1, -1))


async def test_what_was_said_while_a_leader_was_heard_is_believed_after_it(member: Member) -> None:
    """Who is removed while it is reached hears it just after the last heartbeat, and only then."""
    member.node.driver.on_message("n1", Heartbeat(1, -1))
    for peer in ("n1", "n2"):
        member.node.driver.on_message(peer, RemovedNotice(REMOVED_AT))
    await asyncio.sleep(5)
    assert not member.node.removal.is_member
    await asyncio.sleep(100)
    assert await asked_in(member, 1000) < 2 * 1000 / 35


@pytest.mark.parametrize(
    ("peer", "committed", "told"), [("n2", True, True), ("n2", False, False), ("n1", True, False)]
)
async def test_a_member_tells_a_peer_that_is_none_by_the_committed_log(
    member: Member, peer: str, committed: bool, told: bool
) -> None:
    core = member.node.driver.core
    core._raft_log.configurations.append(3, Configuration(("n0", "n1")))
    core._raft_log.commit_index = 3 if committed else 2
    assert isinstance(member.peers, Deaf)
    member.peers.sent.clear()
    member.node.removal.greet(peer)
    core._raft_log.commit_index = -1
    core._raft_log.configurations.truncate(3)
    expected = [(peer, RemovedNotice(3))] if told else []
    assert member.peers.sent == expected


class Leader:
    """n1, which sends entries to the member."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def configure(self, *voters: str) -> None:
        """Sends the configuration, committed."""
        log = self._member.node.core.entry_cache
        body = [Configuration(voters).pack()]
        index = log.last_index + 1
        kind, at = EntryKind.CONFIGURATION, log.end_position
        entry = build_entry(kind, index, 1, at, log.chain_crc, body)
        last_term = 0 if index == 0 else 1
        request = AppendRequest(1, index - 1, last_term, index, (entry,))
        self._member.node.driver.on_message("n1", request)
        await asyncio.sleep(0.5)
        self._member.node.driver.on_message("n1", Heartbeat(1, index))
        await asyncio.sleep(0.1)


async def test_a_node_that_was_removed_while_it_ran_ends_when_no_leader_counts_on_it(
    member: Member, loop: VirtualLoop
) -> None:
    ended: list[float] = []
    Decommissioning(loop, member.node, lambda: ended.append(loop.time()))
    leader = Leader(member)
    await leader.configure("n0", "n1", "n2")
    await leader.configure("n1", "n2")
    for _ in range(20):
        member.node.driver.on_message("n1", Heartbeat(1, member.node.core.commit_index))
        await asyncio.sleep(0.5)
    assert not ended
    await asyncio.sleep(10)
    assert len(ended) == 1


async def test_a_node_whose_removal_is_old_news_goes_on(member: Member, loop: VirtualLoop) -> None:
    ended: list[float] = []
    Decommissioning(loop, member.node, lambda: ended.append(loop.time()))
    leader = Leader(member)
    await leader.configure("n0", "n1", "n2")
    await leader.configure("n1", "n2")
    await leader.configure("n0", "n1", "n2")
    await asyncio.sleep(100)
    assert not ended
