"""Service messages that no honest peer sends, to a whole node: it neither ends nor gives anything
to who is no member."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import PeerError
from dledger.node.executor import Executors
from dledger.node.node import Node
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.raft.term_bound import TERM_MAX
from dledger.wire.codec import MessageEncoder, decode_message, seal
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    HealthReport,
    SnapshotNeededNotice,
)
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from simulator.hosts.hash_state_machine import HashChainStateMachine
from store.replica import ReplicaStore, StoreConfig
from store.state.checkpoint import Checkpoint, encode_checkpoint
from tests.dledger.raft.written_log import written_log
from tests.support.fake_executor import FakeExecutor
from tests.support.search_effort import searching

T = TypeVar("T")

TERM = 3
LOG = written_log([1, 1, 2, TERM, TERM])
NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 100, 1 << 40, TERM_MAX)


class Others:
    """All other nodes: what they are told is kept, and they say only what a test lets them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Message]] = []

    async def start(self, handler: TransportHandler) -> None:
        for peer in ("n1", "n2", "n9"):
            handler.on_peer_connected(peer)

    async def stop(self) -> None:
        """Nothing is open."""

    def send(self, peer: str, message: Message) -> None:
        self.told.append((peer, message))

    def reset(self, peer: str) -> None:
        """It misbehaved; that is all."""

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """All are there."""


class Told:
    """A node n0 that follows n1, and what it makes of what it is told."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.others = Others()
        self.unexpected: list[object] = []
        self.loop.set_exception_handler(lambda _loop, context: self.unexpected.append(context))
        fs = SimulatedFileSystem(Random(1))
        config = StoreConfig("g", "n0", 1 << 16, min_free_bytes=0, incarnation=50)
        lane = FakeExecutor(self.loop)
        self.node = Node(
            node="n0",
            voters=("n0", "n1", "n2"),
            store=ReplicaStore.open(fs, "/data", config),
            transport=self.others,
            machine=HashChainStateMachine(
                lambda _entry, _digest: None, lambda _leadership: None, lambda _index, _digest: None
            ),
            executors=Executors(lane, lane, lane),
            loop=self.loop,
            rng=Random(1),
            on_fatal=self.unexpected.append,
        )

    def run(self, messages: Sequence[tuple[str, Message]]) -> None:
        """It holds the log, and hears these."""

        async def script() -> None:
            await self.node.start()
            self.node.driver.on_message("n1", AppendRequest(TERM, -1, 0, 4, tuple(LOG)))
            await asyncio.sleep(1)
            self.others.told.clear()
            for sender, message in messages:
                self.node.driver.on_message("n1", Heartbeat(TERM, 4))
                self.node.driver.on_message(sender, message)
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            assert self.node.failure is None
            await self.node.stop()

        self.loop.run_until_complete(script())
        self.loop.close()
        assert self.unexpected == []

    def answers(self, to: str) -> list[Message]:
        """What that peer got beside the protocol."""
        kinds = FetchResponse | CheckpointResponse
        return [each for peer, each in self.others.told if peer == to and isinstance(each, kinds)]


numbers = st.sampled_from(NUMBERS)
bad_checkpoint = Checkpoint(5, 1 << 40, 7, TERM_MAX, ((1, 0),), 5, b"state", b"{")
datas = st.sampled_from([b"", b"x" * 100, encode_checkpoint(bad_checkpoint)])
entries = st.sampled_from([(), tuple(LOG), tuple(LOG[3:]), tuple(LOG[:1])])
messages = st.one_of(
    st.builds(HealthReport, st.booleans(), st.booleans(), st.booleans()),
    st.builds(FetchRequest, numbers, numbers, numbers, numbers),
    st.builds(FetchResponse, numbers, st.sampled_from(FetchStatus), numbers, entries),
    st.builds(SnapshotNeededNotice, numbers),
    st.builds(CheckpointRequest, numbers, numbers, numbers),
    st.builds(CheckpointResponse, numbers, numbers, numbers, numbers, numbers, st.just(0), datas),
)


@searching(150)
@given(st.lists(st.tuples(st.sampled_from(("n1", "n2", "n9")), messages), max_size=25))
def test_whatever_a_peer_asks_answers_or_reports_the_node_goes_on(
    told: list[tuple[str, Message]],
) -> None:
    node = Told()
    encoder = MessageEncoder()
    node.run([(name, decode_message(b"".join(encoder.encode(each)))) for name, each in told])
    assert not any(
        getattr(each, "entries", ()) or getattr(each, "data", b"") for each in node.answers("n9")
    )


@pytest.mark.parametrize(("peer", "given_entries"), [("n1", 5), ("n2", 5), ("n9", 0)])
def test_entries_and_checkpoints_are_for_members(peer: str, given_entries: int) -> None:
    node = Told()
    node.run([(peer, FetchRequest(1, 0, 4, PIECE_BYTES)), (peer, CheckpointRequest(2, -1, 0))])
    fetched, checkpoint = node.answers(peer)
    assert isinstance(fetched, FetchResponse)
    assert isinstance(checkpoint, CheckpointResponse)
    assert len(fetched.entries) == given_entries
    assert fetched.status is (FetchStatus.ENTRIES if given_entries else FetchStatus.MISSING)


def test_reports_of_strangers_are_forgotten_with_their_link() -> None:
    node = Told()
    bad = HealthReport(room=False, prompt=False, whole=False)
    node.run([(f"x{number}", bad) for number in range(50)] + [("n2", bad), ("n9", bad)])
    health, known = node.node.health.peers, node.node.core._health
    assert set(health._reports) == known._damaged == known._unhealthy == {"n2", "n9"}
    health.lost("n9")
    health.lost("n2")
    assert set(health._reports) == known._damaged == known._unhealthy == {"n2"}


@pytest.mark.parametrize("garbage", [b"", b"x", bytes(4), b"\xff" * 100])
def test_bytes_that_are_no_message_are_refused(garbage: bytes) -> None:
    with pytest.raises(PeerError):
        decode_message(garbage)


@given(st.binary(max_size=200))
def test_a_sealed_frame_of_anything_is_a_message_or_refused(content: bytes) -> None:
    told = ""
    try:
        decode_message(seal(content))
    except PeerError as error:
        told = str(error)
    assert len(told) < 400
    assert told.isprintable()
