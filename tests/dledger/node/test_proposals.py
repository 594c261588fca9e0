"""What a node tells about proposals when its leadership ends within a single event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from types import NoneType
from typing import TypeVar

import pytest

from dledger.errors import NotServingError, OutcomeUnknownError, ProposeError
from dledger.node.executor import Executors
from dledger.node.node import Node
from dledger.raft.messages import AppendAccepted, AppendRequest, VoteRequest, VoteResponse
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from simulator.hosts.hash_state_machine import HashChainStateMachine
from store.log.entry import Entry, EntryKind, build_entry
from store.replica import ReplicaStore, StoreConfig
from tests.support.fake_executor import FakeExecutor

T = TypeVar("T")


class Recorder:
    """A transport whose peers are the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []

    async def start(self, handler: TransportHandler) -> None:
        for peer in ("n1", "n2"):
            handler.on_peer_connected(peer)

    async def stop(self) -> None:
        """Nothing to close."""

    def send(self, peer: str, message: Message) -> None:
        self.sent.append((peer, message))

    def reset(self, peer: str) -> None:
        raise AssertionError(f"the link to {peer} is broken")

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """All peers are there already."""


async def _elect(node: Node, transport: Recorder) -> None:
    """Both peers grant whatever is asked until the node leads, and confirm its first entry."""
    while not node.core.term_first_index or not node.serving:
        await asyncio.sleep(0.05)
        sent, transport.sent = transport.sent, []
        for peer, message in sent:
            match message:
                case VoteRequest(term=term, pre_vote=pre_vote):
                    node.driver.on_message(peer, VoteResponse(term, True, pre_vote))
                case AppendRequest(term=term, prev_index=previous, entries=entries):
                    node.driver.on_message(peer, AppendAccepted(term, previous + len(entries)))
                case _:
                    pass
        if node.serving:
            return


Deposed = Callable[[Node, int], tuple[AppendRequest, Entry]]


async def _leader(
    loop: VirtualLoop,
    transport: Recorder,
    applied: Callable[[Entry], None],
    failed: Callable[[BaseException], None],
) -> Node:
    """A node of three that leads and serves."""
    fs = SimulatedFileSystem(Random(1))
    store = ReplicaStore.open(fs, "/data", StoreConfig("g", "n0", 1 << 16, min_free_bytes=0))
    lane = FakeExecutor(loop)
    node = Node(
        node="n0",
        voters=("n0", "n1", "n2"),
        store=store,
        transport=transport,
        machine=HashChainStateMachine(
            lambda entry, _digest: applied(entry),
            lambda _leadership: None,
            lambda _index, _digest: None,
        ),
        executors=Executors(lane, lane, lane),
        loop=loop,
        rng=Random(1),
        on_fatal=failed,
    )
    await node.start()
    await _elect(node, transport)
    return node


def _outcomes_when(deposed: Deposed) -> list[type]:
    """What the client of an entry is told when one append deposes its leader and commits what
    stands at its index, which must be applied then.

    ``deposed`` gets the leader and that index, and makes the append and the entry.
    """
    loop = VirtualLoop()
    applied: list[Entry] = []
    outcomes: list[ProposeError | None] = []

    async def script() -> None:
        node = await _leader(loop, Recorder(), applied.append, lambda _: outcomes.append(None))
        append, entry = deposed(node, node.propose(3, lambda _position: [b"our"], outcomes.append))
        node.driver.on_message("n2", append)
        assert applied[-1] == entry
        await node.stop()

    loop.run_until_complete(script())
    loop.close()
    return [type(outcome) for outcome in outcomes]


def test_a_leader_that_has_failed_proposes_nothing_more() -> None:
    """It may be there for a while yet. What it sent then was committed by the next leader, though
    the proposer had been told nothing, or that nothing was written."""
    loop = VirtualLoop()
    outcomes: list[ProposeError | None] = []
    reasons: list[BaseException] = []

    async def script() -> None:
        transport = Recorder()
        node = await _leader(loop, transport, lambda _: None, reasons.append)
        node.propose(3, lambda _position: [b"one"], outcomes.append)
        node.fail(OSError(5, "Input/output error"))
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError]
        transport.sent.clear()
        assert not node.serving
        with pytest.raises(NotServingError):
            node.propose(3, lambda _position: [b"two"], outcomes.append)
        node.driver.advance()
        await asyncio.sleep(2.0)
        assert transport.sent == []
        await node.stop()

    loop.run_until_complete(script())
    loop.close()
    assert len(reasons) == 1


def test_another_leaders_entry_at_the_same_index_acknowledges_nothing() -> None:
    def replaced(node: Node, index: int) -> tuple[AppendRequest, Entry]:
        ours, before = _entry(node, index), _entry(node, index - 1)
        theirs = build_entry(
            EntryKind.DATA, index, ours.term + 1, ours.position, before.chain_crc, [b"their own"]
        )
        return AppendRequest(theirs.term, index - 1, before.term, index, (theirs,)), theirs

    assert _outcomes_when(replaced) == [OutcomeUnknownError]


def test_an_entry_that_the_next_leader_commits_as_it_takes_over_is_acknowledged() -> None:
    def kept(node: Node, index: int) -> tuple[AppendRequest, Entry]:
        ours = _entry(node, index)
        noop = build_entry(EntryKind.NO_OP, index + 1, ours.term + 1, ours.end, ours.chain_crc, [])
        return AppendRequest(noop.term, index, ours.term, index, (noop,)), ours

    assert _outcomes_when(kept) == [NoneType]


def _entry(node: Node, index: int) -> Entry:
    entry = node.core.entry_cache.entry(index)
    assert entry is not None
    return entry
