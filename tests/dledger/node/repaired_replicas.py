"""Replicas whose logs have holes, opened beside peers that give what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from dledger.node.recovering_node import open_replica
from dledger.wire.service_messages import FetchRequest, FetchResponse, FetchStatus, HealthReport
from dledger.wire.transport import Message, TransportHandler
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from store.log.entry import Entry
from store.recovery.opening import StoreConfig
from tests.store.small_logs import CONFIG, DIRECTORY, Writer, open_store, save_mark
from tests.support.fake_executor import FakeExecutor

COUNT = 40


class Givers:
    """Peers that give what they are told to have."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        logs: dict[str, list[Entry]],
        late: dict[str, FetchResponse] | None = None,
        answers: dict[str, FetchResponse] | None = None,
    ) -> None:
        """``late`` comes unasked, after the first answer. ``answers`` are given to any question."""
        self._loop = loop
        self._logs = logs
        self._late = late or {}
        self._answers = answers or {}
        self.reports: list[HealthReport] = []
        self._handler: TransportHandler | None = None
        self.asked: list[str] = []

    async def start(self, handler: TransportHandler) -> None:
        self._handler = handler
        for peer in self._logs:
            handler.on_peer_connected(peer)
        while self._late:
            self._loop.call_later(0.015, self._answer, *self._late.popitem())

    async def stop(self) -> None:
        self._handler = None

    def send(self, peer: str, message: Message) -> None:
        if isinstance(message, HealthReport):
            self.reports.append(message)
            return
        assert isinstance(message, FetchRequest)
        self.asked.append(peer)
        if peer in self._answers:
            fixed = replace(self._answers[peer], number=message.number)
            self._loop.call_later(0.01, self._answer, peer, fixed)
            return
        entries = self._logs[peer][message.first_index : message.first_index + 3]
        status = FetchStatus.ENTRIES if entries else FetchStatus.MISSING
        answer = FetchResponse(message.number, status, 0, tuple(entries))
        self._loop.call_later(0.01, self._answer, peer, answer)

    def _answer(self, peer: str, answer: FetchResponse) -> None:
        if self._handler is not None:
            self._handler.on_message(peer, answer)

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        raise AssertionError(f"the peers change to {sorted(members)} at {addresses}")

    def reset(self, peer: str) -> None:
        raise AssertionError(f"the link to {peer} is broken")


def damaged_replica(
    fs: SimulatedFileSystem, *damaged: int, commit_index: int = COUNT - 3
) -> Writer:
    store = open_store(fs)
    store.save_hard_state(1, "n0")
    writer = Writer()
    store.append(writer.make_many(COUNT))
    store.sync()
    save_mark(store, writer.entries[-3], commit_index)
    store.close()
    for index in damaged:
        entry = writer.entries[index]
        start = entry.position - entry.position % CONFIG.segment_size
        fs.flip_bit(f"{DIRECTORY}/commitlog/{start:020d}", entry.position - start + 30 + index % 40)
    return writer


def repair(
    fs: SimulatedFileSystem,
    logs: dict[str, list[Entry]],
    *,
    seconds: float = 60.0,
    config: StoreConfig = CONFIG,
    after_5_s: Callable[[], None] = lambda: None,
    late: dict[str, FetchResponse] | None = None,
    answers: dict[str, FetchResponse] | None = None,
) -> Givers:
    """Opens the replica, and closes it once it is whole."""
    loop = VirtualLoop()
    loop.call_later(5.0, after_5_s)
    givers = Givers(loop, logs, late, answers)

    async def run() -> None:
        async with asyncio.timeout(seconds):
            opened = await open_replica(
                fs, DIRECTORY, config, lambda: givers, loop, list(logs), executor=FakeExecutor()
            )
            opened.close()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return givers


class Askers(Givers):
    """Peers that ask for entries before they give any."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        logs: dict[str, list[Entry]],
        requests: list[FetchRequest],
    ) -> None:
        super().__init__(loop, logs)
        self._requests = requests
        self.answers: list[tuple[str, FetchResponse]] = []

    async def start(self, handler: TransportHandler) -> None:
        for request in self._requests:
            for peer in ("n1", "stranger"):
                handler.on_message(peer, request)
        await super().start(handler)

    def send(self, peer: str, message: Message) -> None:
        if isinstance(message, FetchResponse):
            self.answers.append((peer, message))
        else:
            super().send(peer, message)

    def ask(self, peer: str, request: FetchRequest) -> None:
        """The peer asks now."""
        assert self._handler is not None
        self._handler.on_message(peer, request)
