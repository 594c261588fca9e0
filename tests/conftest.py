"""Rules for all tests: their markers, and what a test without a marker must not do."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from broker.cli.local_cluster import port_layout
from tests.support.search_effort import EXAMPLES, QUICK_EXAMPLES
from tests.support.virtual_network import NetworkedLoop
from tests.support.work_shares import UnitScheduling, put_in_order

settings.register_profile(
    "any machine",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("any machine")
"""By default an example fails that takes more than 200 ms by the clock, as any does now and then
where the machine has much else to do."""

settings.register_profile("quick", settings.get_profile("any machine"), max_examples=QUICK_EXAMPLES)
"""Of each property a fifth of the examples, for ``make quick``."""

worker, workers = (os.environ.get(f"PYTEST_XDIST_{name}") for name in ("WORKER", "WORKER_COUNT"))
if worker and workers:
    # A port that was free when a cluster was planned may be in use when its node starts.
    port_layout.FREE_PORTS = port_layout.FREE_PORTS[int(worker[2:]) :: int(workers)]

TESTS = Path(__file__).parent
ROOMS = {
    "bench": "processes",
    "clients": "processes",
    "cluster": "processes",
    "console": "processes",
    "soak": "processes",
    "spark": "jvm",
}
"""Folders, and the marker that all their tests have."""

STARTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "subprocess.Popen",
}
"""Audit events of Python that start a process."""

_within: list[str] = []
"""The running test, if it has no marker that allows processes."""


def _refuse_processes(event: str, _arguments: tuple[object, ...]) -> None:
    if event in STARTS and _within:
        raise RuntimeError(f"{_within[0]} does {event}: mark it as `processes`")


sys.addaudithook(_refuse_processes)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives a test the marker of its folder."""
    if item.path.is_relative_to(TESTS):
        room = item.path.relative_to(TESTS).parts[0]
        if room in ROOMS:
            item.add_marker(ROOMS[room])


@pytest.fixture(autouse=True)
def no_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test without a marker must start no process."""
    if not any(map(request.node.get_closest_marker, ("processes", "jvm", "node"))):
        _within.append(request.node.nodeid)
    yield
    _within.clear()


@pytest.fixture(autouse=True)
def no_blocked_signals() -> Iterator[None]:
    """A test must leave no signal blocked: all processes of later tests would inherit that."""
    yield
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    assert not blocked, f"left blocked: {blocked}"


@pytest.fixture(scope="module", autouse=True)
def no_power_loss() -> Iterator[None]:
    """A sync checks its file, but does not wait for the disk: no test cuts real power."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, os.fstat)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a worker: the order in which workers take the tests."""
    if worker:
        put_in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling | None:
    """Shares the tests out in that order, if files are shared out at all."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return UnitScheduling(config, log)


def pytest_collection_finish() -> None:
    """Freezes imported objects, so that the garbage collector skips them."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Function
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test that takes ``loop``, or a fixture that does, runs in virtual time. One that takes
    ``each_loop`` runs in each event loop that servers have."""
    del config
    if "each_loop" in item.fixturenames:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"loop": NetworkedLoop if "loop" in item.fixturenames else asyncio.new_event_loop}


@pytest.fixture
async def loop() -> NetworkedLoop:
    """The event loop: time jumps to the next timer, connections are in memory."""
    running = asyncio.get_running_loop()
    assert isinstance(running, NetworkedLoop)
    return running


@pytest.fixture
async def each_loop() -> asyncio.AbstractEventLoop:
    """The event loop: asyncio's own, then uvloop's."""
    return asyncio.get_running_loop()


def pytest_configure() -> None:
    """Makes SIGTERM (``kill``, ``timeout``, a cancelled CI job) end the tests like Ctrl-C: fixtures
    are torn down, so no process of a cluster stays behind. Also restores signals that ``nohup``, or
    ``&`` in a shell, makes processes ignore, and unblocks those that a parent has blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
