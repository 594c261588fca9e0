"""Changes of the members that an operator asks of the leader, one at a time."""

from __future__ import annotations

import asyncio

import pytest

from dledger.errors import ChangeRefusedError, ProposeError
from dledger.raft.configuration import MEMBERS_MAX, MemberAddress
from tests.dledger.node.member import Member

ADDRESS = MemberAddress("h:1", "h:2", "h:3")

Answers = list[ProposeError | None]


async def added(member: Member, node: str) -> Answers:
    answers: Answers = []
    member.node.membership.add_learner(node, ADDRESS, answers.append)
    await asyncio.sleep(0.2)
    return answers


async def test_a_change_waits_until_the_one_before_is_answered(member: Member) -> None:
    """That one is committed, and applied only later: entries are being read from the disk."""
    member.node.applier._reading = True
    first = await added(member, "n3")
    with pytest.raises(ChangeRefusedError, match="under way"):
        await added(member, "n4")
    for change in (member.node.membership.promote, member.node.membership.remove):
        with pytest.raises(ChangeRefusedError, match="under way"):
            change("n3", print)
    assert first == []
    member.node.applier._reading = False
    member.node.driver.advance()
    assert first == [None]
    assert await added(member, "n4") == [None]
    assert member.node.core.configuration.learners == ("n3", "n4")


async def test_no_member_is_added_that_the_others_would_refuse(member: Member) -> None:
    for number in range(3, MEMBERS_MAX):
        assert await added(member, f"n{number}") == [None]
    with pytest.raises(ChangeRefusedError, match=f"at most {MEMBERS_MAX} members"):
        await added(member, f"n{MEMBERS_MAX}")
    assert await added(member, f"n{MEMBERS_MAX - 1}") == [None]
    assert len(member.node.core.configuration.members) == MEMBERS_MAX
