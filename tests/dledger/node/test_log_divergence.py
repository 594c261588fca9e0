"""A node whose log contradicts that of its group notices, makes sure, and refills."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from random import Random

from dledger.node.executor import Executors
from dledger.node.log_divergence import REFUSALS
from dledger.node.node import Node
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.wire.service_messages import (
    CheckpointRequest,
    FetchRequest,
    FetchResponse,
    FetchStatus,
)
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from simulator.hosts.hash_state_machine import HashChainStateMachine
from store.log.entry import Entry, EntryKind, build_entry
from store.replica import ReplicaStore, StoreConfig
from tests.support.fake_executor import FakeExecutor

TERM = 3


def log_of(word: bytes, count: int = 4) -> list[Entry]:
    """Entries with bodies of one size, so that two logs differ in nothing but that."""
    entries: list[Entry] = []
    position = chain = 0
    for index in range(count):
        body = word if index < 2 else b"same"
        entries.append(build_entry(EntryKind.DATA, index, TERM, position, chain, [body]))
        position, chain = entries[-1].end, entries[-1].chain_crc
    return entries


OURS, THEIRS = log_of(b"ours"), log_of(b"them")


class Group:
    """The leader n1, and n2, which holds a log of its own."""

    def __init__(self, loop: VirtualLoop, held_by_n2: list[Entry]) -> None:
        self._loop = loop
        self._held = held_by_n2
        self.handler: TransportHandler | None = None
        self.resets = 0
        self.asked_for_checkpoint = 0

    async def start(self, handler: TransportHandler) -> None:
        self.handler = handler
        for peer in ("n1", "n2"):
            handler.on_peer_connected(peer)

    async def stop(self) -> None:
        self.handler = None

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        assert set(members) == {"n0", "n1", "n2"}
        assert not addresses

    def reset(self, peer: str) -> None:
        assert peer == "n1"
        self.resets += 1

    def send(self, peer: str, message: Message) -> None:
        match message:
            case FetchRequest(number, first_index):
                entries = (self._held[first_index],)
                answer = FetchResponse(number, FetchStatus.ENTRIES, 0, entries)
                self._loop.call_soon(self.tell, peer, answer)
            case CheckpointRequest():
                assert peer == "n1"
                self.asked_for_checkpoint += 1
            case _:
                pass

    def tell(self, peer: str, message: Message) -> None:
        if self.handler is not None:
            self.handler.on_message(peer, message)


def follow(held_by_n2: list[Entry]) -> tuple[Node, Group]:
    """A node that holds our log hears of the leader's next entry, again and again."""
    loop = VirtualLoop()
    group = Group(loop, held_by_n2)
    lane = FakeExecutor(loop)
    fs = SimulatedFileSystem(Random(1))
    store = ReplicaStore.open(fs, "/data", StoreConfig("g", "n0", 1 << 16, min_free_bytes=0))
    node = Node(
        node="n0",
        voters=("n0", "n1", "n2"),
        store=store,
        transport=group,
        machine=HashChainStateMachine(
            lambda _entry, _digest: None, lambda _leadership: None, lambda _index, _digest: None
        ),
        executors=Executors(lane, lane, lane),
        loop=loop,
        rng=Random(1),
        on_fatal=lambda error: None,
    )

    async def run() -> None:
        await node.start()
        group.tell("n1", AppendRequest(TERM, -1, 0, 1, tuple(OURS[:3])))
        await asyncio.sleep(0.1)
        for _ in range(REFUSALS + 1):
            group.tell("n1", Heartbeat(TERM, 1))
            group.tell("n1", AppendRequest(TERM, 2, TERM, 1, (THEIRS[3],)))
            await asyncio.sleep(0.1)
        await node.stop()

    script: Coroutine[object, object, None] = run()
    loop.run_until_complete(script)
    loop.close()
    return node, group


def test_a_log_that_another_member_contradicts_too_is_refilled() -> None:
    node, group = follow(THEIRS)
    assert node.divergence.found
    assert not node.health.report.whole
    assert group.asked_for_checkpoint == 1
    assert group.resets == REFUSALS, "once it is sure, it keeps the link"


def test_a_log_that_another_member_shares_stays_as_it_is() -> None:
    node, group = follow(OURS)
    assert not node.divergence.found
    assert group.asked_for_checkpoint == 0
    assert node.core.entry_cache.last_index == 2
