"""When a follower applies what is committed: after what it has to send and to write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import ClassVar, TypeVar

import pytest

from dledger.node.applier import APPLY_RETRY_SECONDS, LONG_READ_SECONDS, REPAIR_SECONDS
from dledger.node.executor import Executors
from dledger.node.node import Node
from dledger.node.state_machine import LongReadError
from dledger.raft.messages import NOTICE, AppendAccepted, AppendRequest, Heartbeat
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from simulator.hosts.hash_state_machine import HashChainStateMachine
from store.errors import DerivedDamageError, OutOfDescriptorsError, StoreError
from store.log.entry import Entry, EntryKind, build_entry
from store.replica import ReplicaStore, StoreConfig
from tests.dledger.node.member import HEALTHY, Member
from tests.support.fake_executor import FakeExecutor

T = TypeVar("T")


class Leader:
    """The transport of n0, which the test leads as n1."""

    def __init__(self, applied: list[Entry]) -> None:
        self._applied = applied
        self.confirmed: list[tuple[int, int]] = []
        """Each index that was confirmed, and how many entries were applied by then."""

    async def start(self, handler: TransportHandler) -> None:
        handler.on_peer_connected("n1")

    async def stop(self) -> None:
        """Nothing to close."""

    def send(self, peer: str, message: Message) -> None:
        if peer == "n1" and isinstance(message, AppendAccepted):
            self.confirmed.append((message.match_index, len(self._applied)))

    def reset(self, peer: str) -> None:
        raise AssertionError(f"the link to {peer} is broken")

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """All peers are there already."""


Script = Callable[[Node, Leader, FakeExecutor, list[Entry]], Awaitable[None]]


class DoubtfulMachine(HashChainStateMachine):
    """Cannot apply an entry now if it ``lacks`` something."""

    lacks: ClassVar[StoreError | LongReadError | None] = None

    def apply(self, entry: Entry) -> None:
        if self.lacks is not None:
            raise self.lacks
        super().apply(entry)


DAMAGE = DerivedDamageError("/data/commitlog/0", 7, "CRC", 0)
NO_DESCRIPTORS = OutOfDescriptorsError("consumequeue/orders/0 cannot be opened now")


def follow(script: Script) -> None:
    """Runs the script with a node that has confirmed the first entry of n1, not yet committed."""
    loop = VirtualLoop()

    async def run() -> None:
        fs = SimulatedFileSystem(Random(1))
        store = ReplicaStore.open(fs, "/data", StoreConfig("g", "n0", 1 << 16, min_free_bytes=0))
        applied: list[Entry] = []
        leader, log, others = Leader(applied), FakeExecutor(loop), FakeExecutor(loop)
        node = Node(
            node="n0",
            voters=("n0", "n1", "n2"),
            store=store,
            transport=leader,
            machine=DoubtfulMachine(
                lambda entry, _digest: applied.append(entry),
                lambda _leadership: None,
                lambda _index, _digest: None,
            ),
            executors=Executors(log, others, others),
            loop=loop,
            rng=Random(1),
            on_fatal=lambda error: None,
        )
        await node.start()
        node.driver.on_message("n1", AppendRequest(1, -1, 0, -1, (next_entry(node),)))
        await turns()
        assert leader.confirmed == [(0, 0)]
        await script(node, leader, log, applied)
        log.release()
        await node.stop()

    loop.run_until_complete(run())
    loop.close()


def next_entry(node: Node) -> Entry:
    log = node.core.entry_cache
    index = log.last_index + 1
    return build_entry(EntryKind.DATA, index, 1, log.end_position, log.chain_crc, [b"%d" % index])


async def turns() -> None:
    """Some turns of the loop: enough for a write and its answer."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_an_append_is_written_and_confirmed_before_what_it_commits_is_applied() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        node.driver.on_message("n1", AppendRequest(1, 0, 1, 0, (next_entry(node),)))
        assert applied == []
        await turns()
        assert leader.confirmed[1:] == [(1, 0)]
        assert [entry.index for entry in applied] == [0]

    follow(script)


def test_while_the_disk_does_not_answer_a_heartbeat_makes_a_follower_apply() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        log.hold()
        node.driver.on_message("n1", AppendRequest(1, 0, 1, 0, (next_entry(node),)))
        await turns()
        assert applied == []
        node.driver.on_message("n1", Heartbeat(1, 0))
        await turns()
        assert [entry.index for entry in applied] == [0]
        assert leader.confirmed[1:] == []

    follow(script)


def test_what_a_notice_commits_is_applied_at_once_because_it_is_not_answered() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        node.driver.on_message("n1", Heartbeat(1, 0, NOTICE))
        assert [entry.index for entry in applied] == [0]

    follow(script)


def test_what_a_heartbeat_commits_is_applied_after_the_answer() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        node.driver.on_message("n1", Heartbeat(1, 0, 1))
        assert applied == []
        await turns()
        assert [entry.index for entry in applied] == [0]

    follow(script)


def test_a_node_that_stopped_meanwhile_applies_nothing_more() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        node.driver.on_message("n1", Heartbeat(1, 0, 1))
        node.fail(RuntimeError("a disk"))
        await turns()
        assert applied == []

    follow(script)


def test_an_entry_that_needs_what_is_damaged_is_applied_once_that_is_whole() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        DoubtfulMachine.lacks = DAMAGE
        node.driver.on_message("n1", AppendRequest(1, 0, 1, 0, (next_entry(node),)))
        await asyncio.sleep(5 * APPLY_RETRY_SECONDS)
        assert node.failure is None
        assert not node.state_divergence.wrong
        assert applied == []
        DoubtfulMachine.lacks = None
        await asyncio.sleep(2 * APPLY_RETRY_SECONDS)
        assert [entry.index for entry in applied] == [0]

    follow(script)


def test_an_entry_that_needs_a_file_is_applied_once_descriptors_are_there() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        DoubtfulMachine.lacks = NO_DESCRIPTORS
        node.driver.on_message("n1", AppendRequest(1, 0, 1, 0, (next_entry(node),)))
        await asyncio.sleep(REPAIR_SECONDS + 2 * APPLY_RETRY_SECONDS)
        assert node.failure is None
        assert not node.state_divergence.wrong  # nothing is damaged
        assert applied == []
        DoubtfulMachine.lacks = None
        await asyncio.sleep(2 * APPLY_RETRY_SECONDS)
        assert [entry.index for entry in applied] == [0]

    follow(script)


def test_what_takes_long_to_read_is_read_in_pieces_between_which_the_loop_turns() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        pieces: list[bool] = []

        def read() -> bool:
            pieces.append(len(pieces) == 2)
            if pieces[-1]:
                DoubtfulMachine.lacks = None
            return pieces[-1]

        DoubtfulMachine.lacks = LongReadError(read)
        node.driver.on_message("n1", Heartbeat(1, 0, NOTICE))
        assert (pieces, applied) == ([False], [])
        await asyncio.sleep(0)
        assert (pieces, applied) == ([False, False], [])
        await turns()
        assert pieces == [False, False, True]
        assert [entry.index for entry in applied] == [0]

    follow(script)


def test_damage_within_what_takes_long_to_read_is_repaired_first() -> None:
    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        damaged = [DAMAGE]

        def read() -> bool:
            for each in damaged:
                raise each
            DoubtfulMachine.lacks = None
            return True

        DoubtfulMachine.lacks = LongReadError(read)
        node.driver.on_message("n1", Heartbeat(1, 0, NOTICE))
        await asyncio.sleep(5 * APPLY_RETRY_SECONDS)
        assert node.failure is None
        assert applied == []
        damaged.clear()
        await asyncio.sleep(2 * APPLY_RETRY_SECONDS)
        assert [entry.index for entry in applied] == [0]

    follow(script)


async def test_a_leader_that_reads_for_long_hands_over(
    loop: VirtualLoop, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    member.peers.reports = dict.fromkeys(("n1", "n2"), HEALTHY)
    await asyncio.sleep(1)
    monkeypatch.setattr(member.node.applier, "_reads", FakeExecutor(loop, seconds=0.1))

    def apply(_machine: HashChainStateMachine, _entry: Entry) -> None:
        raise LongReadError(lambda: False)

    monkeypatch.setattr(HashChainStateMachine, "apply", apply)
    member.propose()
    await asyncio.sleep(LONG_READ_SECONDS / 2)
    assert member.leads
    await asyncio.sleep(LONG_READ_SECONDS)
    assert not member.leads
    assert len(member.peers.ordered) == 1


def test_a_node_gives_up_its_state_for_what_nobody_repairs() -> None:
    """Its peers have expired what the entry needs, and the entry is what would expire it here."""

    async def script(node: Node, leader: Leader, log: FakeExecutor, applied: list[Entry]) -> None:
        DoubtfulMachine.lacks = DAMAGE
        node.driver.on_message("n1", AppendRequest(1, 0, 1, 0, (next_entry(node),)))
        await asyncio.sleep(REPAIR_SECONDS + 2 * APPLY_RETRY_SECONDS)
        DoubtfulMachine.lacks = None
        assert node.state_divergence.unrepaired
        assert node.state_divergence.wrong.startswith("entry 0 cannot be applied: /data/commitlog")

    follow(script)
