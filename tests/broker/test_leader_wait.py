"""Requests for the leader: passed on, or held until there is one, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from broker.leader_wait import LeaderWait
from broker.limits import ForwardingLimits
from dledger.errors import NotLeaderError
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.support.virtual_network import NetworkedLoop

SECONDS = 1.0
LIMITS = ForwardingLimits(wait_seconds=SECONDS, waiting_max=2)
SERVES = "served here"


class Node:
    """Node n0, which hears who leads. ``port`` is what the leader answers, None: it does not."""

    def __init__(self, loop: NetworkedLoop, leader: str | None = None) -> None:
        self.loop = loop
        self.now = Leadership(Role.FOLLOWER, 1, leader, serving=False)
        self.wait = LeaderWait(loop, "n0", lambda: self.now.leader, LIMITS)
        self.port: str | None = None
        self.passed_on = 0

    def hear(self, leader: str | None, *, serving: bool = False) -> None:
        self.now = Leadership(Role.FOLLOWER, self.now.term + 1, leader, serving=serving)
        self.wait.leadership_changed()

    async def here(self) -> str:
        if not self.now.serving:
            raise NotLeaderError(self.now.leader)
        return SERVES

    async def there(self, refusal: Exception) -> str | None:
        assert isinstance(refusal, NotLeaderError)
        self.passed_on += 1
        return self.port

    async def ask(self, *, forwarded: bool = False) -> tuple[str, float]:
        """The answer, or who leads, and after how many seconds."""
        began = self.loop.time()
        try:
            there = None if forwarded else self.there
            answer = await self.wait.serve_or_forward(self.here, there)
        except NotLeaderError as error:
            answer = f"refused: {error.leader}"
        return answer, round(self.loop.time() - began, 3)


async def test_it_is_passed_on_at_once(loop: NetworkedLoop) -> None:
    node = Node(loop, "n1")
    node.port = "served there"
    assert await node.ask() == ("served there", 0)
    assert node.passed_on == 1


@pytest.mark.parametrize(("leader", "expected"), [("n0", SERVES), ("n1", "served there")])
async def test_who_waits_goes_on_when_there_is_a_leader_and_asks_nobody_meanwhile(
    loop: NetworkedLoop, leader: str, expected: str
) -> None:
    node = Node(loop)
    asking = asyncio.ensure_future(node.ask())
    await asyncio.sleep(0.4)
    assert node.passed_on == 1
    if leader == "n1":
        node.port = "served there"
    node.hear(leader, serving=leader == "n0")
    assert await asking == (expected, 0.4)


async def test_what_was_passed_on_waits_for_its_receiver_to_serve_and_for_nobody_else(
    loop: NetworkedLoop,
) -> None:
    node = Node(loop, "n1")
    assert await node.ask(forwarded=True) == ("refused: n1", 0)
    node.hear("n0")
    asking = asyncio.ensure_future(node.ask(forwarded=True))
    await asyncio.sleep(0.3)
    node.hear("n0", serving=True)
    assert await asking == (SERVES, 0.3)
    assert node.passed_on == 0


async def test_after_one_waited_in_vain_all_are_refused_until_there_is_a_leader(
    loop: NetworkedLoop,
) -> None:
    node = Node(loop)
    assert await node.ask() == ("refused: None", SECONDS)
    assert await node.ask() == ("refused: None", 0)
    node.hear(None)
    assert await node.ask() == ("refused: None", 0)
    node.hear("n1")
    assert await node.ask() == ("refused: n1", SECONDS)


async def test_a_leader_that_answers_again_is_one_and_the_next_is_waited_for(
    loop: NetworkedLoop,
) -> None:
    """Its port was out of reach for a while, and it went on leading."""
    node = Node(loop, "n1")
    assert await node.ask() == ("refused: n1", SECONDS)
    node.port = "served there"
    assert await node.ask() == ("served there", 0)
    node.port = None
    node.hear(None)
    asking = asyncio.ensure_future(node.ask())
    await asyncio.sleep(0.4)
    node.hear("n0", serving=True)
    assert await asking == (SERVES, 0.4)


async def test_so_many_wait(loop: NetworkedLoop) -> None:
    node = Node(loop)
    answers = await asyncio.gather(*(node.ask() for _ in range(3)))
    assert [seconds for _, seconds in answers] == [SECONDS, SECONDS, 0]
