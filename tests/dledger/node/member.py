"""A node of a group of three. The test plays its peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

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
from store.io.disk_watermarks import DiskWatermarks
from store.replica import ReplicaStore, StoreConfig
from tests.support.fake_executor import FakeExecutor

T = TypeVar("T")

HEALTHY = HealthReport(room=True, prompt=True, whole=True)
STALL_SECONDS = 3.0


class Peers:
    """Two peers that grant and confirm everything, and report what the test says."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._handler: TransportHandler | None = None
        self.reports: dict[str, HealthReport] = {}
        self.vote_requests = 0
        self.heard: list[HealthReport] = []
        self.told: list[str] = []  # by message, the peers that got it
        self.heartbeats = 0
        self.ordered: list[str] = []  # the peers that were asked to campaign
        self.obeys = True  # whether a peer that is asked campaigns

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
        """Does nothing: the peers are fixed."""

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
    """A node of a group of three. The test plays its peers."""

    def __init__(
        self,
        loop: VirtualLoop,
        peers: Peers | None = None,
        fs: SimulatedFileSystem | None = None,
    ) -> None:
        self.fs = fs or SimulatedFileSystem(Random(1))
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


@asynccontextmanager
async def leading(loop: VirtualLoop) -> AsyncIterator[Member]:
    """A node that leads, from its election to its stop."""
    member = Member(loop)
    await member.node.start()
    await asyncio.sleep(2)
    assert member.node.serving
    yield member
    member.log.release()
    await member.node.stop()
    assert member.node.failure is None
