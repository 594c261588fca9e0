"""A node whose disk is full or does not answer gives the leadership to one whose disk does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from dledger.config import RaftConfig
from dledger.node.executor import Executors
from dledger.node.node import Node
from dledger.raft.messages import (
    AppendAccepted,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.raft_state import Role
from dledger.wire.service_messages import HealthReport
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from simulator.hosts.hash_state_machine import HashChainStateMachine
from store.io.disk_watermarks import DiskLevel, DiskWatermarks
from store.replica import ReplicaStore, StoreConfig
from tests.support.fake_executor import FakeExecutor

T = TypeVar("T")

FIT = HealthReport(room=True, prompt=True, whole=True)
STALL_SECONDS = 3.0


class Peers:
    """Two peers that grant and confirm everything, and report what they are told to."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._handler: TransportHandler | None = None
        self.reports: dict[str, HealthReport] = {}
        self.vote_requests = 0
        self.heard: list[HealthReport] = []
        self.told: list[str] = []  # who was told each of them
        self.heartbeats = 0
        self.ordered: list[str] = []  # who was told to campaign
        self.obeys = True  # whether who is told so does it

    async def start(self, handler: TransportHandler) -> None:
        self._handler = handler
        for peer in ("n1", "n2"):
            handler.on_peer_connected(peer)

    async def stop(self) -> None:
        self._handler = None

    def send(self, peer: str, message: Message) -> None:
        self._loop.call_soon(self._answer, peer, message)

    def reset(self, peer: str) -> None:
        raise AssertionError(f"the link to {peer} is broken")

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """All peers are there already."""

    def _answer(self, peer: str, message: Message) -> None:
        if self._handler is None:
            return
        answer: Message
        match message:
            case VoteRequest(term=term, pre_vote=pre_vote):
                self.vote_requests += 1
                answer = VoteResponse(term, True, pre_vote)
            case AppendRequest(term=term, prev_index=previous, entries=entries):
                answer = AppendAccepted(term, previous + len(entries))
            case Heartbeat(term=term, commit_index=commit):
                self.heartbeats += 1
                if peer in self.reports:
                    self._handler.on_message(peer, self.reports[peer])
                answer = HeartbeatResponse(term, commit, commit)
            case TimeoutNow(term=term):
                self.ordered.append(peer)
                if not self.obeys:
                    return
                answer = VoteRequest(term + 1, 1 << 30, term, False, ordered=True)
            case HealthReport():
                self.heard.append(message)
                self.told.append(peer)
                return
            case _:
                return
        self._handler.on_message(peer, answer)


class Member:
    """A node of a group of three whose peers are the test."""

    def __init__(self, loop: VirtualLoop, peers: Peers | None = None) -> None:
        self.fs = SimulatedFileSystem(Random(1))
        self.log = FakeExecutor(loop)
        self.peers = peers or Peers(loop)
        other = FakeExecutor(loop)
        store = ReplicaStore.open(
            self.fs, "/data", StoreConfig("g", "n0", 1 << 16, min_free_bytes=0)
        )
        self.node = Node(
            node="n0",
            voters=("n0", "n1", "n2"),
            store=store,
            transport=self.peers,
            machine=HashChainStateMachine(
                lambda _entry, _digest: None,
                lambda _leadership: None,
                lambda _index, _digest: None,
            ),
            executors=Executors(self.log, other, other),
            loop=loop,
            rng=Random(1),
            on_fatal=lambda error: None,
            config=RaftConfig(disk_stall_seconds=STALL_SECONDS),
            watermarks=DiskWatermarks(),
        )

    def propose(self) -> None:
        self.node.propose(3, lambda _position: [b"abc"], lambda _error: None)

    @property
    def leads(self) -> bool:
        return self.node.core.role is Role.LEADER


def with_leader(scenario: Callable[[Member], Coroutine[Any, Any, None]]) -> None:
    """Runs ``scenario`` with a node that leads."""
    loop = VirtualLoop()

    async def run() -> None:
        member = Member(loop)
        await member.node.start()
        await asyncio.sleep(2)
        assert member.node.serving
        await scenario(member)
        member.log.release()
        await member.node.stop()
        assert member.node.failure is None

    loop.run_until_complete(run())
    loop.close()


def test_a_leader_whose_disk_ends_no_write_gives_way_to_one_that_reported_fit() -> None:
    async def scenario(member: Member) -> None:
        member.peers.reports["n1"] = FIT
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

    with_leader(scenario)


def test_without_a_fit_peer_a_leader_whose_disk_hangs_keeps_its_heartbeats() -> None:
    async def scenario(member: Member) -> None:
        member.peers.reports["n1"] = HealthReport(room=False, prompt=True, whole=True)
        member.log.hold()
        member.propose()
        await asyncio.sleep(10 * STALL_SECONDS)
        assert member.leads
        before = member.peers.heartbeats
        await asyncio.sleep(1)
        assert member.peers.heartbeats - before >= 18

    with_leader(scenario)


def test_a_leader_tells_its_peers_how_it_is_only_when_that_changes() -> None:
    async def scenario(member: Member) -> None:
        assert member.peers.told == ["n1", "n2"]
        await asyncio.sleep(10)
        assert member.peers.told == ["n1", "n2"]
        member.node.health.set_damaged(damaged=True)
        await asyncio.sleep(0.1)
        assert member.peers.told == ["n1", "n2"] * 2
        assert not member.peers.heard[-1].whole

    with_leader(scenario)


def test_a_follower_tells_its_leader_how_it_is_and_a_new_leader_within_a_second() -> None:
    async def scenario(member: Member) -> None:
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

    with_leader(scenario)


def test_writes_that_take_long_but_end_cost_nobody_the_leadership() -> None:
    async def scenario(member: Member) -> None:
        member.peers.reports["n1"] = FIT
        for _ in range(8):
            member.log.hold()
            member.propose()
            await asyncio.sleep(STALL_SECONDS / 2)
            member.log.release()
            await asyncio.sleep(0.1)
        assert member.leads

    with_leader(scenario)


def test_a_leader_without_room_gives_way_and_waits_longer_than_others_to_campaign() -> None:
    async def scenario(member: Member) -> None:
        member.peers.reports["n2"] = FIT
        member.fs.capacity = member.fs.used_bytes() + 10
        await asyncio.sleep(1.1)
        assert member.node.health.level is DiskLevel.FULL
        assert not member.leads
        assert not member.peers.heard[-1].room
        asked = member.peers.vote_requests
        await asyncio.sleep(2.3)
        assert member.peers.vote_requests == asked
        await asyncio.sleep(4)
        assert member.peers.vote_requests > asked, "where nobody else is elected, it is"

    with_leader(scenario)


def test_a_leader_without_room_hands_over_to_the_peer_that_has_room() -> None:
    async def scenario(member: Member) -> None:
        member.peers.reports["n1"] = HealthReport(room=False, prompt=True, whole=True)
        member.peers.reports["n2"] = FIT
        member.fs.capacity = member.fs.used_bytes() + 10
        await asyncio.sleep(1.6)
        assert member.peers.ordered == ["n2"]
        assert not member.leads

    with_leader(scenario)


def test_a_leader_without_room_steps_down_where_handing_over_comes_to_nothing() -> None:
    async def scenario(member: Member) -> None:
        member.peers.reports["n2"] = FIT
        member.peers.obeys = False
        member.fs.capacity = member.fs.used_bytes() + 10
        await asyncio.sleep(1.1)
        assert member.peers.ordered == ["n2"]
        assert member.leads
        await asyncio.sleep(1.4)
        assert member.peers.ordered == ["n2"]
        assert not member.leads

    with_leader(scenario)


def test_a_leader_without_room_leads_on_where_nobody_else_has_any() -> None:
    async def scenario(member: Member) -> None:
        for peer in ("n1", "n2"):
            member.peers.reports[peer] = HealthReport(room=False, prompt=True, whole=True)
        member.fs.capacity = member.fs.used_bytes() + 10
        await asyncio.sleep(15)
        assert member.peers.ordered == []
        assert member.leads

    with_leader(scenario)


def test_a_disk_with_room_again_is_seen_without_a_restart() -> None:
    async def scenario(member: Member) -> None:
        levels: list[DiskLevel] = []
        member.node.health.on_level = levels.append
        member.fs.capacity = member.fs.used_bytes() + 10
        await asyncio.sleep(2)
        member.fs.capacity = None
        await asyncio.sleep(2)
        assert levels == [DiskLevel.FULL, DiskLevel.ROOM]
        assert member.peers.heard[-1].healthy

    with_leader(scenario)


def test_a_damaged_node_campaigns_only_where_all_others_are_damaged_too() -> None:
    async def scenario(member: Member) -> None:
        node = member.node
        node.health.set_damaged(damaged=True)
        assert not node.core.campaigns
        harmed = HealthReport(room=True, prompt=True, whole=False)
        node.health.received("n1", harmed)
        assert not node.core.campaigns
        node.health.received("n2", harmed)
        assert node.core.campaigns
        node.divergence.found = True
        node.health.set_damaged(damaged=True)
        assert not node.core.campaigns

    with_leader(scenario)
