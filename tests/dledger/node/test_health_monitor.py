"""A node whose disk is full or does not answer gives the leadership to one whose disk does."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from dledger.errors import ProposeError
from dledger.raft.configuration import MemberAddress
from dledger.raft.messages import (
    Heartbeat,
)
from dledger.wire.service_messages import HealthReport
from store.io.disk_watermarks import DiskLevel
from tests.dledger.node.member import HEALTHY, Member

T = TypeVar("T")

STALL_SECONDS = 3.0


async def test_a_leader_whose_disk_ends_no_write_gives_way_to_one_that_reported_healthy(
    member: Member,
) -> None:
    member.peers.reports["n1"] = HEALTHY
    await asyncio.sleep(2)
    member.log.hold()
    member.propose()
    await asyncio.sleep(STALL_SECONDS - 0.6)
    assert member.leads
    await asyncio.sleep(1.7)
    assert not member.leads
    asked = member.peers.vote_requests
    await asyncio.sleep(20)
    assert member.peers.vote_requests == asked, "a node that cannot write asks for no votes"
    assert not member.peers.heard[-1].prompt
    member.log.release()
    await asyncio.sleep(5)
    assert member.peers.heard[-1].healthy
    assert member.leads


async def test_without_a_healthy_peer_a_leader_whose_disk_hangs_keeps_its_heartbeats(
    member: Member,
) -> None:
    member.peers.reports["n1"] = HealthReport(room=False, prompt=True, whole=True)
    member.log.hold()
    member.propose()
    await asyncio.sleep(10 * STALL_SECONDS)
    assert member.leads
    before = member.peers.heartbeats
    await asyncio.sleep(1)
    assert member.peers.heartbeats - before >= 18


async def test_a_leader_tells_its_peers_how_it_is_only_when_that_changes(member: Member) -> None:
    assert member.peers.told == ["n1", "n2"]
    await asyncio.sleep(10)
    assert member.peers.told == ["n1", "n2"]
    member.node.health.set_damaged(damaged=True)
    await asyncio.sleep(0.1)
    assert member.peers.told == ["n1", "n2"] * 2
    assert not member.peers.heard[-1].whole


async def test_a_follower_tells_its_leader_how_it_is_and_a_new_leader_within_a_second(
    member: Member,
) -> None:
    peers, term = member.peers, member.node.core.term
    for leads, leader in enumerate(("n1", "n2"), 1):
        peers.told.clear()
        member.node.driver.on_message(leader, Heartbeat(term + leads, -1))
        for _ in range(3):
            await asyncio.sleep(0.3)
            member.node.driver.on_message(leader, Heartbeat(term + leads, -1))
        assert peers.told
        for _ in range(6):
            await asyncio.sleep(0.3)
            member.node.driver.on_message(leader, Heartbeat(term + leads, -1))
        assert set(peers.told) == {leader}
        assert 2 <= len(peers.told) <= 4
        assert peers.heard[-1].healthy


async def test_writes_that_take_long_but_end_cost_nobody_the_leadership(member: Member) -> None:
    member.peers.reports["n1"] = HEALTHY
    for _ in range(8):
        member.log.hold()
        member.propose()
        await asyncio.sleep(STALL_SECONDS / 2)
        member.log.release()
        await asyncio.sleep(0.1)
    assert member.leads


async def test_a_leader_without_room_gives_way_and_waits_longer_than_others_to_campaign(
    member: Member,
) -> None:
    member.peers.reports["n2"] = HEALTHY
    member.fs.capacity = member.fs.used_bytes() + 10
    await asyncio.sleep(1.1)
    assert member.node.health.disk.level is DiskLevel.FULL
    assert not member.leads
    assert not member.peers.heard[-1].room
    asked = member.peers.vote_requests
    await asyncio.sleep(2.3)
    assert member.peers.vote_requests == asked
    await asyncio.sleep(4)
    assert member.peers.vote_requests > asked, "where nobody else is elected, it is"


async def test_a_leader_that_stops_hands_over_and_does_not_want_the_leadership_back(
    member: Member,
) -> None:
    """It follows and votes until it has ended, and may be elected where nobody else is."""
    member.peers.reports["n1"] = HEALTHY
    await asyncio.sleep(1)
    member.node.health.stops()
    await asyncio.sleep(0.001)
    assert member.peers.ordered == ["n1"], "at once, not with the next heartbeat"
    await asyncio.sleep(0.1)
    assert member.peers.told[-2:] == ["n1", "n2"]
    assert not member.peers.heard[-1].healthy
    assert member.peers.heard[-1].room, "without it, some groups would refuse messages"
    await asyncio.sleep(2)
    assert not member.leads


async def test_a_leader_without_room_hands_over_to_the_peer_that_has_room(member: Member) -> None:
    member.peers.reports["n1"] = HealthReport(room=False, prompt=True, whole=True)
    member.peers.reports["n2"] = HEALTHY
    member.fs.capacity = member.fs.used_bytes() + 10
    await asyncio.sleep(1.6)
    assert member.peers.ordered == ["n2"]
    assert not member.leads


async def test_a_leader_without_room_steps_down_where_handing_over_comes_to_nothing(
    member: Member,
) -> None:
    member.peers.reports["n2"] = HEALTHY
    member.peers.obeys = False
    member.fs.capacity = member.fs.used_bytes() + 10
    await asyncio.sleep(1.1)
    assert member.peers.ordered == ["n2"]
    assert member.leads
    await asyncio.sleep(1.4)
    assert member.peers.ordered == ["n2"]
    assert not member.leads


async def test_a_leader_without_room_leads_on_where_nobody_else_has_any(member: Member) -> None:
    for peer in ("n1", "n2"):
        member.peers.reports[peer] = HealthReport(room=False, prompt=True, whole=True)
    member.fs.capacity = member.fs.used_bytes() + 10
    await asyncio.sleep(15)
    assert member.peers.ordered == []
    assert member.leads


async def test_a_learner_with_room_is_no_reason_to_give_up_the_leadership(member: Member) -> None:
    added: list[ProposeError | None] = []
    member.node.driver.on_peer_connected("n3")
    member.node.membership.add_learner("n3", MemberAddress("h:1", "h:2", "h:3"), added.append)
    await asyncio.sleep(1)
    assert added == [None]
    for peer in ("n1", "n2"):
        member.peers.reports[peer] = HealthReport(room=False, prompt=True, whole=True)
    member.peers.reports["n3"] = HEALTHY
    member.fs.capacity = member.fs.used_bytes() + 10
    for _ in range(150):
        await asyncio.sleep(0.1)
        assert member.leads


async def test_a_disk_with_room_again_is_seen_without_a_restart(member: Member) -> None:
    levels: list[DiskLevel] = []
    member.node.health.on_level = levels.append
    member.fs.capacity = member.fs.used_bytes() + 10
    await asyncio.sleep(2)
    member.fs.capacity = None
    await asyncio.sleep(2)
    assert levels == [DiskLevel.FULL, DiskLevel.ROOM]
    assert member.peers.heard[-1].healthy


NO_ROOM = HealthReport(room=False, prompt=True, whole=True)


async def test_a_leader_refuses_messages_while_the_voters_with_room_are_no_majority(
    member: Member,
) -> None:
    refusals: list[str] = []
    member.node.health.on_refusal = lambda why: refusals.append(str(why(9)) if why else "")
    member.peers.reports.update(n1=NO_ROOM, n2=HEALTHY)
    await asyncio.sleep(10)
    assert refusals == [], "one disk that is full, or a node that tells so wrongly, stops nothing"
    member.peers.reports["n2"] = NO_ROOM
    await asyncio.sleep(1)
    (refusal,) = refusals
    assert refusal.endswith(
        "9 bytes: n1 and n2 say that they have no room, and the other voters are no majority"
    )
    member.peers.reports["n1"] = HEALTHY
    await asyncio.sleep(1)
    assert refusals[1:] == [""]


async def test_what_a_voter_said_of_its_disk_stops_messages_only_for_a_while(
    member: Member,
) -> None:
    refused: list[bool] = []
    member.node.health.on_refusal = lambda why: refused.append(why is not None)
    member.peers.reports.update(n1=NO_ROOM, n2=NO_ROOM)
    await asyncio.sleep(10)
    assert refused == [True]
    del member.peers.reports["n2"]
    await asyncio.sleep(2)
    assert refused == [True]
    await asyncio.sleep(2)
    assert refused == [True, False]


async def test_a_leader_that_leads_no_more_refuses_no_messages_for_its_peers(
    member: Member,
) -> None:
    refused: list[bool] = []
    member.node.health.on_refusal = lambda why: refused.append(why is not None)
    member.peers.reports.update(n1=NO_ROOM, n2=NO_ROOM)
    await asyncio.sleep(1)
    member.node.driver.on_message("n1", Heartbeat(member.node.core.term + 1, -1))
    for _ in range(4):
        await asyncio.sleep(0.2)
        member.node.driver.on_message("n1", Heartbeat(member.node.core.term, -1))
    assert refused == [True, False]


async def test_an_own_full_disk_is_the_reason_even_if_peers_have_no_room(member: Member) -> None:
    refusals: list[str] = []
    member.node.health.on_refusal = lambda why: refusals.append(str(why(9)) if why else "")
    member.peers.reports.update(n1=NO_ROOM, n2=NO_ROOM)
    await asyncio.sleep(1)
    member.fs.capacity = member.fs.used_bytes() + 10
    await asyncio.sleep(1)
    assert "n1 and n2" in refusals[0]
    assert "MiB must stay free" in refusals[1]
    member.fs.capacity = None
    await asyncio.sleep(1)
    assert "n1 and n2" in refusals[2]
    assert len(refusals) == 3


async def test_a_damaged_node_campaigns_only_where_all_others_are_damaged_too(
    member: Member,
) -> None:
    node = member.node
    node.health.set_damaged(damaged=True)
    assert not node.core.campaigns
    harmed = HealthReport(room=True, prompt=True, whole=False)
    node.health.peers.received("n1", harmed)
    assert not node.core.campaigns
    node.health.peers.received("n2", harmed)
    assert node.core.campaigns
    node.divergence.found = True
    node.health.set_damaged(damaged=True)
    assert not node.core.campaigns
