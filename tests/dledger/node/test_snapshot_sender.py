"""How fast a node hands out what a follower lacks, and for how much of the time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.node.executor import Executor
from dledger.node.health_monitor import LOOK_SECONDS
from dledger.node.lifecycle import Lifecycle
from dledger.node.peer_calls import ANSWER_SECONDS
from dledger.node.snapshot_sender import (
    PIECE_BYTES,
    PIECE_SECONDS_MAX,
    PROGRESS_KEPT_SECONDS,
    SnapshotSender,
)
from dledger.raft.core import Raft
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    ServiceMessage,
)
from simulator.engine.event_loop import VirtualLoop
from store.errors import DamagedError, OutOfDescriptorsError, OutOfRangeError, StoreError
from store.replica import ReplicaStore
from tests.dledger.raft.written_log import written_log
from tests.support.fake_executor import FakeExecutor

RATE = 8 << 20
SECONDS = 30.0


def sender(  # a node of which nothing but what is handed out exists
    loop: VirtualLoop,
    executor: FakeExecutor,
    store: object,
    told: Callable[[str, ServiceMessage], None],
    *,
    commit_index: int = 0,
    rate: int = RATE,
    jobs_done: Callable[[], int] = lambda: 0,
    wrong: str = "",
    suspect: Callable[[int], None] = lambda _index: None,
) -> SnapshotSender:
    core = SimpleNamespace(commit_index=commit_index, progress={}, serves=lambda _peer: True)
    return SnapshotSender(
        core=cast(Raft, core),
        store=cast(ReplicaStore, store),
        background=cast(Executor, executor),
        reads=cast(Executor, executor),
        loop=loop,
        bytes_per_second=rate,
        lifecycle=Lifecycle(node="n0", on_silent=lambda: None, on_fatal=lambda _error: None),
        jobs_done=jobs_done,
        state_wrong=lambda: wrong,
        suspect=suspect,
        send=told,
        advance=lambda: None,
    )


class Follower:
    """Asks for the next piece once it has written the last, which takes it ``seconds``."""

    def __init__(self, loop: VirtualLoop, seconds: float, *, jobs_per_second: int) -> None:
        self._loop = loop
        self._seconds = seconds
        self._asked_at = 0.0
        self.pieces = 0
        self.under_way = 0.0
        entries = written_log([1])
        store = SimpleNamespace(
            first_index=0,
            last_index=0,
            read_entries=self._read,
            beginning=lambda: (0, 0),
            read_checkpoint=lambda _index, _offset, size: (0, 1 << 40, bytes(size)),
        )
        self._entries = entries
        self._begun_at = 0.0
        self._jobs_done = 0

        def work() -> None:
            self._jobs_done += 1
            loop.call_later(1 / jobs_per_second, work)

        def look() -> None:
            self.snapshot_sender.look()
            loop.call_later(LOOK_SECONDS, look)

        work()
        self.told: Callable[[str, ServiceMessage], None] = self._told
        self.snapshot_sender = sender(
            loop,
            FakeExecutor(loop, seconds=0.001),
            store,
            self._send,
            jobs_done=lambda: self._jobs_done,
        )
        look()

    def _send(self, peer: str, message: ServiceMessage) -> None:
        self.told(peer, message)

    def _read(self, _first: int, _last: int, _size: int) -> list[Any]:
        self._begun_at = self._loop.time() - 0.001
        return self._entries

    def ask(self) -> None:
        self.snapshot_sender.fetch("n1", FetchRequest(1, 0, 0, PIECE_BYTES))

    def _told(self, _peer: str, message: ServiceMessage) -> None:
        assert isinstance(message, FetchResponse)
        assert message.entries
        self._loop.call_later(self._seconds, self._written)

    def _written(self) -> None:
        self.pieces += 1
        self.under_way += self._loop.time() - self._begun_at
        self.ask()


def served(seconds: float, *, jobs_per_second: int) -> Follower:
    loop = VirtualLoop()

    async def run() -> Follower:
        follower = Follower(loop, seconds, jobs_per_second=jobs_per_second)
        await asyncio.sleep(1.5)  # now it knows whether the node is at work
        follower.ask()
        await asyncio.sleep(SECONDS)
        return follower

    follower = loop.run_until_complete(run())
    loop.close()
    return follower


@pytest.mark.parametrize("seconds", [0.0, 0.004, 0.02, PIECE_SECONDS_MAX / 2])
def test_while_a_node_is_at_work_pieces_are_under_way_for_less_than_a_tenth_of_the_time(
    seconds: float,
) -> None:
    follower = served(seconds, jobs_per_second=100)
    assert follower.pieces >= SECONDS / 2
    assert follower.under_way < SECONDS / 10


def test_a_long_way_to_the_follower_slows_the_refill_no_further() -> None:
    assert served(1.0, jobs_per_second=100).pieces >= SECONDS / (1.1 + 11 * PIECE_SECONDS_MAX) - 1


def test_a_node_that_is_idle_hands_out_without_a_pause() -> None:
    follower = served(0.02, jobs_per_second=1)
    assert follower.under_way > SECONDS * 0.9


def test_pieces_of_a_checkpoint_wait_for_their_turn_like_those_of_the_log() -> None:
    loop = VirtualLoop()
    bytes_told = 0

    async def run() -> None:
        follower = Follower(loop, 0.0, jobs_per_second=1)

        def told(_peer: str, message: ServiceMessage) -> None:
            nonlocal bytes_told
            assert isinstance(message, CheckpointResponse)
            bytes_told += len(message.data)
            follower.snapshot_sender.checkpoint("n1", CheckpointRequest(1, 0, bytes_told))

        follower.told = told
        follower.snapshot_sender.checkpoint("n1", CheckpointRequest(1, -1, 0))
        await asyncio.sleep(SECONDS)

    loop.run_until_complete(run())
    loop.close()
    assert RATE * SECONDS * 0.8 < bytes_told <= RATE * SECONDS + PIECE_BYTES


@pytest.mark.parametrize(
    ("error", "status", "suspected"),
    [
        (DamagedError("index/0", 288, "row"), FetchStatus.MISSING, [7]),
        (OutOfRangeError("it has just expired"), FetchStatus.EXPIRED, []),
        (OutOfDescriptorsError("it cannot be opened now"), FetchStatus.BUSY, []),
    ],
)
def test_what_rotted_has_not_expired_and_is_looked_at_at_once(
    error: StoreError, status: FetchStatus, suspected: list[int]
) -> None:
    told: list[ServiceMessage] = []
    suspects: list[int] = []

    def fail(*_: int) -> None:
        raise error

    store = SimpleNamespace(
        first_index=0, last_index=9, read_entries=fail, beginning=lambda: (0, 0)
    )
    loop = VirtualLoop()
    try:
        snapshot_sender = sender(
            loop,
            FakeExecutor(),
            store,
            lambda _peer, message: told.append(message),
            commit_index=9,
            suspect=suspects.append,
        )
        snapshot_sender.fetch("n1", FetchRequest(1, 7, 9, PIECE_BYTES))
    finally:
        loop.close()
    assert told == [FetchResponse(1, status, 0)]
    assert suspects == suspected


@pytest.mark.parametrize(("wrong", "given"), [("", 0), ("offsets", -1)])
def test_a_node_whose_state_is_wrong_gives_no_checkpoint(wrong: str, given: int) -> None:
    told: list[ServiceMessage] = []
    store = SimpleNamespace(
        beginning=lambda: (0, 0), read_checkpoint=lambda *_: (0, 1, b"s"), first_index=0
    )
    loop = VirtualLoop()
    try:
        snapshot_sender = sender(
            loop, FakeExecutor(), store, lambda _peer, message: told.append(message), wrong=wrong
        )
        snapshot_sender.checkpoint("n1", CheckpointRequest(1, 0, PIECE_BYTES))
    finally:
        loop.close()
    (answer,) = told
    assert isinstance(answer, CheckpointResponse)
    assert answer.index == given


class Asked:
    """What one peer asks of a log of nine entries that begins with entry 2, and what is kept."""

    def __init__(self) -> None:
        self.entries = written_log([1] * 9)
        self.damaged: set[int] = set()
        self.loop = VirtualLoop()
        store = SimpleNamespace(
            first_index=2,
            last_index=8,
            beginning=lambda: (2, self.entries[2].position),
            read_entries=self._read,
            read_checkpoint=lambda _index, offset, _size: (8, 2, b"cp"[offset : offset + 1]),
        )
        self.snapshot_sender = sender(
            self.loop, FakeExecutor(), store, lambda _peer, _told: None, commit_index=8
        )

    def _read(self, first: int, last: int, _size: int) -> list[Any]:
        if first in self.damaged:
            raise DamagedError("commitlog/0", first, "body")
        return self.entries[first : min(first + 2, last + 1)]

    def fetch(self, first: int, last: int = 8) -> int | None:
        """Which entry retention keeps afterwards, with all behind it."""
        self.snapshot_sender.fetch("n1", FetchRequest(1, first, last, PIECE_BYTES))
        return self.needed()

    def checkpoint(self) -> int | None:
        for offset in (0, 1):
            self.snapshot_sender.checkpoint("n1", CheckpointRequest(1, 8, offset))
        return self.needed()

    def needed(self) -> int | None:
        self.loop.run_until_complete(asyncio.sleep(1))
        position = self.snapshot_sender.needed_position
        places = [entry.index for entry in self.entries if entry.position == position]
        return places[0] if places else None


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    yield made
    made.loop.close()


def test_the_log_is_needed_from_the_piece_on_that_a_refill_has_yet_to_write(asked: Asked) -> None:
    assert asked.needed() is None
    assert asked.checkpoint() == 2
    assert asked.fetch(2) == 2
    assert asked.fetch(4) == 4
    assert asked.checkpoint() == 2, "it begins again"
    assert asked.fetch(2) == 2
    assert asked.fetch(4) == 4
    asked.loop.run_until_complete(asyncio.sleep(PROGRESS_KEPT_SECONDS))
    assert asked.needed() is None
    assert asked.fetch(6) == 6, "it goes on after a long pause"


def kept_after(loop: VirtualLoop, ask: Callable[[], int | None]) -> int | None:
    """What is kept at the end if a peer asks for the same again and again."""
    kept = None
    until = loop.time() + 2 * PROGRESS_KEPT_SECONDS
    while loop.time() < until:
        kept = ask()
    return kept


def test_who_asks_without_progress_keeps_nothing_for_ever(asked: Asked) -> None:
    assert asked.checkpoint() == 2
    assert kept_after(asked.loop, asked.checkpoint) is None, "no room to begin"
    assert asked.fetch(2) == 2
    assert asked.fetch(4) == 4
    assert kept_after(asked.loop, lambda: asked.fetch(4)) is None, "no room for these entries"
    assert asked.fetch(6) == 6
    asked.damaged.add(8)
    assert kept_after(asked.loop, lambda: asked.fetch(8)) is None, "it is damaged here, too"


def test_who_repairs_single_entries_keeps_nothing(asked: Asked) -> None:
    assert kept_after(asked.loop, lambda: asked.fetch(4, 4) or asked.fetch(7, 7)) is None


@pytest.mark.parametrize(("mib", "peers"), [(16, 1), (4, 2), (4, 3)])
def test_no_answer_comes_too_late_however_low_the_rate(mib: int, peers: int) -> None:
    """Large entries at 1 MiB/s: who asks is answered in time, and everybody gets on."""
    loop = VirtualLoop()
    store = SimpleNamespace(
        first_index=0,
        last_index=0,
        beginning=lambda: (0, 0),
        read_entries=lambda *_: [SimpleNamespace(index=0, position=0, size=mib << 20)],
    )
    given: Counter[str] = Counter()
    asked_at: dict[str, float] = {}
    waited: list[float] = []

    def ask(peer: str) -> None:
        asked_at[peer] = loop.time()
        snapshot_sender.fetch(peer, FetchRequest(1, 0, 0, PIECE_BYTES))

    def told(peer: str, answer: ServiceMessage) -> None:
        assert isinstance(answer, FetchResponse)
        waited.append(loop.time() - asked_at[peer])
        given[peer] += len(answer.entries)
        loop.call_later(0.5, ask, peer)

    async def run() -> None:
        for peer in range(peers):
            ask(f"n{peer}")
        await asyncio.sleep(300)

    snapshot_sender = sender(loop, FakeExecutor(loop, seconds=0.001), store, told, rate=1 << 20)
    loop.run_until_complete(run())
    loop.close()
    assert max(waited) < ANSWER_SECONDS / 2
    assert min(given.values()) > 300 / mib / peers / 2
    assert sum(given.values()) <= 300 / mib + peers
