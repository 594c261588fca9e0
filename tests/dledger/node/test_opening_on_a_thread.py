"""A thread opens a replica: the event loop turns, and who stops waits for its files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from random import Random

import pytest

from dledger.node.executor import ThreadExecutor
from dledger.node.recovering_node import open_replica
from dledger.wire.service_messages import FetchRequest, FetchStatus
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.disk_file import SimulatedLock
from store.log.entry import Entry
from store.recovery.recovery import Recovery
from store.replica import ReplicaStore
from tests.dledger.node.repaired_replicas import Askers, Givers, damaged_replica, repair
from tests.store.small_logs import CONFIG, DIRECTORY, open_store
from tests.support.virtual_network import turns

SECONDS = 10.0


class SlowFileSystem(SimulatedFileSystem):
    """Takes no lock until ``let`` is set."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.asked, self.let = threading.Event(), threading.Event()

    def lock(self, path: str) -> SimulatedLock:
        self.asked.set()
        assert self.let.wait(SECONDS)
        return super().lock(path)


def opening(
    fs: SimulatedFileSystem, givers: Givers, executor: ThreadExecutor
) -> asyncio.Task[ReplicaStore]:
    loop = asyncio.get_running_loop()
    return loop.create_task(
        open_replica(fs, DIRECTORY, CONFIG, lambda: givers, loop, ["n1"], executor=executor)
    )


def test_the_loop_turns_while_a_replica_is_opened() -> None:
    fs = SlowFileSystem()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        executor = ThreadExecutor(loop, "opens")
        loop.call_soon(fs.let.set)
        (await opening(fs, Givers(loop, {}), executor)).close()
        executor.close()

    asyncio.run(scenario())


def test_who_stops_while_the_log_is_read_waits_until_its_files_are_closed() -> None:
    fs = SlowFileSystem()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        executor = ThreadExecutor(loop, "opens")
        task = opening(fs, Givers(loop, {}), executor)
        await loop.run_in_executor(None, fs.asked.wait)
        task.cancel()
        await turns(10)
        assert not task.done()  # the thread has the files
        fs.let.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        executor.close()
        assert not fs.locks
        open_store(fs).close()

    asyncio.run(scenario())


def test_who_stops_while_a_hole_is_filled_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, 20)
    asked, let = threading.Event(), threading.Event()
    fill = Recovery.fill

    def slow(recovery: Recovery, entries: list[Entry], go_on: Callable[[], None]) -> None:
        asked.set()
        assert let.wait(SECONDS)
        fill(recovery, entries, go_on)

    monkeypatch.setattr(Recovery, "fill", slow)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        executor = ThreadExecutor(loop, "opens")
        givers = Askers(loop, {"n1": writer.entries}, [])
        task = opening(fs, givers, executor)
        await loop.run_in_executor(None, asked.wait)
        givers.ask("n1", FetchRequest(1, 0, 40, 1 << 20))
        assert [answer.status for _, answer in givers.answers] == [FetchStatus.BUSY]
        task.cancel()
        await turns(10)
        assert not task.done()
        let.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        executor.close()

    asyncio.run(scenario())
    monkeypatch.undo()
    repair(fs, {"n1": writer.entries})
