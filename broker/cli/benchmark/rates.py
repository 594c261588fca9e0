"""The rates of sending, compared with the floor; and the rates of reading."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from broker.bench.jobs import FillJob, FloorJob, LoadShape, ReplayJob
from broker.bench.process_usage import memory_bytes
from broker.bench.results import summarise
from broker.bench.worker_client import LoadError
from broker.cli.benchmark.measured import Bench, say

WARM_UP_SECONDS = 1.0
BATCHES, SINGLE = LoadShape(128, 4), LoadShape(1, 256)
REPLAY_MESSAGES = 256 * 1024
SINGLE_MESSAGES = 64 * 1024
"""Fewer, because sending them takes longer."""
READERS = 10
SMALL_PULL = 32
"""The messages that RocketMQ's clients request in a pull."""


def measure_rates(bench: Bench) -> None:
    """Measures closed loops of each shape."""
    topic = bench.new_topic()
    for shape in bench.request.shapes:
        say(f"{bench.measured.title}: {shape.name}")
        job = bench.produce_job((topic,), shape, WARM_UP_SECONDS)
        bench.measured.add({shape.name: bench.client.measure(job)})
    bench.measured.memory_bytes = memory_bytes(bench.pids)
    bench.delete_topic(topic)


def measure_floor(bench: Bench) -> None:
    """Measures the floor: the same bytes, relayed and written by as many processes without work for
    each message."""
    request = bench.request
    with _relays(request.directory, bench.measured.nodes) as (address, pids):
        for shape in request.shapes:
            say(f"floor: {shape.name}")
            job = FloorJob(address, request.size, shape, 0.5, request.seconds, 1, pids)
            bench.measured.floor.append(summarise(shape.name, bench.client.measure(job)))


@contextmanager
def _relays(parent: Path | None, nodes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The address of a relay with its followers, and all their pids."""
    relays: list[subprocess.Popen[str]] = []
    addresses: list[str] = []
    with TemporaryDirectory(prefix="dledger-bench-floor-", dir=parent) as directory:
        try:
            for number in range(nodes):
                followers = addresses if number == nodes - 1 else []
                file = Path(directory, f"relay-{number}")
                relay = subprocess.Popen(
                    [sys.executable, "-m", "broker.bench.floor_relay", str(file), *followers],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                relays.append(relay)
                port = relay.stdout.readline() if relay.stdout is not None else ""
                if not port:
                    raise LoadError("a process of the floor has ended; see above")
                addresses.append(f"127.0.0.1:{int(port)}")
            yield addresses[-1], tuple(relay.pid for relay in relays)
        finally:
            for relay in relays:
                relay.communicate()


def measure_replays(bench: Bench) -> None:
    """Measures reading: of batches and of single messages; by full and small pulls; by many
    groups."""
    _replay(bench, BATCHES, REPLAY_MESSAGES, "replay", READERS)
    _replay(bench, SINGLE, SINGLE_MESSAGES, "replay, sent singly", READERS)


def _replay(bench: Bench, shape: LoadShape, count: int, name: str, readers: int) -> None:
    topic = bench.new_topic()
    bench.client.fill(FillJob((topic,), bench.request.size, count, shape))
    rounds = bench.request.rounds
    for title, job in (
        (name, ReplayJob(topic, count, rounds, bench.pids)),
        (
            f"{name}, {SMALL_PULL} at a time",
            ReplayJob(topic, count // 4, rounds, bench.pids, at_once=SMALL_PULL),
        ),
        (
            f"{name}, {readers} groups",
            ReplayJob(topic, count // 4, 1, bench.pids, readers=readers),
        ),
    ):
        say(f"{bench.measured.title}: {title}")
        bench.measured.add({title: bench.client.measure(job)})
    bench.delete_topic(topic)
