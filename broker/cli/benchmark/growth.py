"""The cost of a message as one quantity grows: each curve on a cluster of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.bench.growth import Curve, Point
from broker.bench.jobs import ConnectionsJob, FillJob, LoadShape, ReplayJob
from broker.bench.process_usage import memory_bytes
from broker.bench.results import Round, summarise
from broker.cli.benchmark.measured import Bench, say

WARM_UP_SECONDS = 0.5
SINGLE = LoadShape(1, 256)
TOPIC_QUEUES = 10_000
"""The most queues of a topic; for more queues there are several topics."""
LARGE_BYTES = 256 * 1024
GROUPS_MESSAGES = 256 * 1024
"""The number of messages that all groups together read."""
SMALL_PULL = 32


@dataclass(frozen=True, slots=True)
class Growth:
    """One curve: the growing quantity, and how a point is measured."""

    name: str
    points: Sequence[int]
    full: Sequence[int]
    """Further points with ``--full``."""
    measure: Callable[[Bench, int], list[Round]]
    restarts: bool = False
    per_byte: bool = False


def _queues(bench: Bench, count: int) -> list[Round]:
    """Each queue gets messages, before and during the measurement."""
    per_topic = min(count, TOPIC_QUEUES)
    topics = tuple(bench.new_topic(per_topic) for _ in range(count // per_topic))
    bench.client.fill(FillJob(topics, bench.request.size, count, SINGLE))
    return bench.client.measure(bench.produce_job(topics, SINGLE, WARM_UP_SECONDS))


def _sizes(bench: Bench, size: int) -> list[Round]:
    topic = bench.new_topic()
    shape = LoadShape(1, 32 if size <= LARGE_BYTES else 4)
    rounds = bench.client.measure(bench.produce_job((topic,), shape, WARM_UP_SECONDS, size))
    bench.delete_topic(topic)
    return rounds


def _groups(bench: Bench, count: int) -> list[Round]:
    topic = bench.new_topic(queues=1)
    messages = max(1024, GROUPS_MESSAGES // count // 4)
    bench.client.fill(FillJob((topic,), bench.request.size, messages, LoadShape(128, 4)))
    job = ReplayJob(topic, messages, 1, bench.pids, readers=count, at_once=SMALL_PULL)
    rounds = bench.client.measure(job)
    bench.delete_topic(topic)
    return rounds


def _connections(bench: Bench, count: int) -> list[Round]:
    topic, empty = bench.new_topic(), bench.new_topic(queues=1)
    (leader,) = bench.ask(lambda admin: admin.masters()).values()
    bench.client.hold_connections(ConnectionsJob(leader, empty, count))
    rounds = bench.client.measure(bench.produce_job((topic,), SINGLE, WARM_UP_SECONDS))
    bench.client.hold_connections(ConnectionsJob(leader, empty, 0))
    bench.delete_topic(topic)
    return rounds


CURVES = (
    Growth("queues in use", (10, 100, 1000, 10_000), (100_000,), _queues, restarts=True),
    Growth(
        "bytes of a message",
        (16, 1024, 16 * 1024, LARGE_BYTES),
        (4000 * 1024,),
        _sizes,
        per_byte=True,
    ),
    Growth("groups that read a topic", (1, 10, 100), (1000,), _groups),
    Growth("connections, half in held pulls", (10, 100, 1000), (10_000,), _connections),
)


def measure_curve(
    bench: Bench, growth: Growth, restart: Callable[[Bench], float], *, full: bool
) -> None:
    """Measures the points from the smallest to the largest. ``restart`` kills all brokers and
    starts them again; it returns the milliseconds to the next acknowledgement."""
    points: list[Point] = []
    for at in (*growth.points, *(growth.full if full else ())):
        say(f"{at:,} {growth.name}")
        summary = summarise(f"{at:,} {growth.name}", growth.measure(bench, at))
        memory = memory_bytes(bench.pids)
        restart_ms = restart(bench) if growth.restarts else None
        points.append(Point(at, summary, memory, restart_ms))
    bench.measured.growth.append(Curve(growth.name, points, growth.per_byte))
