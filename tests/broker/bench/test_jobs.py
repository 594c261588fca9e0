"""Jobs between two processes, and what is made of their results."""

from __future__ import annotations

import os
import time
from mmap import mmap
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from broker.bench.failover import FailoverResult, waits_ms
from broker.bench.growth import Curve, Point
from broker.bench.jobs import (
    ConnectionsJob,
    FillJob,
    FloorJob,
    HttpJob,
    Job,
    LoadShape,
    ProbeJob,
    ProduceJob,
    ReplayJob,
    SteadyJob,
    decode_job,
    encode_job,
)
from broker.bench.process_usage import cpu_seconds, memory_bytes, usage
from broker.bench.results import Round, Summary, summarise


@pytest.mark.parametrize(
    "job",
    [
        ProduceJob(("t", "u"), 10, LoadShape(128, 4), 0.5, 2.0, 3, (1, 2)),
        SteadyJob(("t",), 10, 40_000.5, 0.5, 2.0, 3, (1, 2)),
        FillJob(("t",), 10, 1000, LoadShape(1, 256)),
        ReplayJob("t", 1000, 3, (), readers=10, at_once=32),
        ProbeJob("t", 10),
        ConnectionsJob("10.0.0.1:10911", "t", 10),
        FloorJob("127.0.0.1:1", 10, LoadShape(128, 4), 0.5, 2.0, 3, (1, 2)),
        HttpJob("127.0.0.1:1", "t", 10, LoadShape(1, 32), 0.5, 2.0, 3, (1, 2)),
    ],
    ids=lambda job: type(job).__name__,
)
def test_a_job_survives_the_pipe(job: Job) -> None:
    line = encode_job(job)
    assert line.endswith(b"\n")
    assert decode_job(line) == job


def test_a_summary_has_the_median_of_each_figure() -> None:
    rounds = [
        Round(1000, 1.0, 0.1, 0.3, 1.0, 9.0),
        Round(3000, 1.0, 0.6, 0.3, 3.0, 7.0),
        Round(2000, 1.0, 0.2, 0.8, 2.0, 8.0),
    ]
    summary = summarise("x", rounds)
    assert (summary.slowest, summary.messages_per_second, summary.fastest) == (1000, 2000, 3000)
    assert (summary.p50_ms, summary.p99_ms) == (2.0, 8.0)
    assert summary.client_cpu_seconds_per_100k == pytest.approx(10.0)
    assert summary.server_cpu_seconds_per_100k == pytest.approx(30.0)
    assert summary.to_json()["cpu_seconds_per_100k"] == pytest.approx(40.0)


def test_a_workload_without_requests_has_no_latency() -> None:
    summary = summarise("replay", [Round(10, 1.0, 0.0, 0.0)])
    assert (summary.p50_ms, summary.p99_ms) == (None, None)


def test_cpu_time_is_that_of_the_processes_that_live() -> None:
    before = cpu_seconds([os.getpid()])
    ends_at = time.process_time() + 0.05
    while time.process_time() < ends_at:
        pass
    assert before + 0.05 <= cpu_seconds([os.getpid()]) <= time.process_time()
    assert cpu_seconds([2**22 + 1]) == 0


def test_cpu_time_of_a_moment_is_no_less_than_it_was() -> None:
    before, work = cpu_seconds([os.getpid()]), sum(range(1000))
    assert (cpu_seconds([os.getpid()]) > before, work) == (True, 499_500)


def test_what_is_written_is_counted_per_byte_of_all_rounds() -> None:
    rounds = [
        Round(1, 1.0, 0.0, 0.0, payload_bytes=100, server_written_bytes=0),
        Round(3, 1.0, 0.0, 0.0, payload_bytes=300, server_written_bytes=1600),
    ]
    assert summarise("x", rounds).written_per_payload_byte == 4.0
    assert summarise("replay", [Round(1, 1.0, 0.0, 0.0)]).written_per_payload_byte is None


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts these")
def test_usage_counts_what_a_process_writes_and_keeps() -> None:
    pids = [os.getpid(), 2**22 + 1]
    before, memory = usage(pids), memory_bytes(pids)
    kept = mmap(-1, 32 << 20)  # pages of its own, where the heap may have free ones
    kept.write(b"x" * (32 << 20))
    with TemporaryFile() as file:  # on a disk: that of other tests may be in memory
        file.write(kept[: 4 << 20])
        file.flush()
        os.fsync(file.fileno())
        on_disk = os.fstatvfs(file.fileno()).f_fsid != 0
    used = usage(pids).since(before)
    if on_disk:  # a file system in memory writes nothing
        assert used.written_bytes >= 4 << 20
    assert 0 < used.cpu_seconds < time.process_time()
    assert memory_bytes(pids) >= memory + (16 << 20)
    kept.close()


def point(at: int, cpu_per_100k: float) -> Point:
    rates = (1.0, 1.0, 1.0, None, None)
    return Point(at, Summary("x", *rates, cpu_per_100k, 0.0), memory_bytes=0)


def test_a_curve_compares_its_dearest_message_with_its_first() -> None:
    curve = Curve("queues", [point(1, 4.0), point(10, 6.0), point(100, 5.0)])
    assert curve.dearness == pytest.approx(1.5)


def test_sizes_are_compared_by_the_byte_without_the_fixed_cost() -> None:
    mib = 1 << 20
    curve = Curve(
        "bytes",
        [point(0, 1e5), point(mib, 3e5), point(2 * mib, 5e5), point(4 * mib, 13e5)],
        per_byte=True,
    )
    assert curve.costs == pytest.approx([2.0, 2.0, 3.0])
    assert curve.dearness == pytest.approx(1.5)


def test_a_curve_of_one_point_has_nothing_to_compare() -> None:
    assert Curve("bytes", [point(16, 1.0)], per_byte=True).dearness == 1.0
    assert Curve("queues", [point(16, 1.0)]).dearness == 1.0


def test_waits_are_counted_from_the_kill_and_the_cluster_is_repaired_each_time() -> None:
    done: list[str] = []
    moments = iter((10.0, 20.0))

    def kill() -> float:
        done.append("kill")
        return next(moments)

    waits = waits_ms(kill, lambda: done.append("repair"), lambda moment: moment + 0.25, rounds=2)
    assert waits == [250.0, 250.0]
    assert done == ["kill", "repair", "kill", "repair"]


def test_a_failover_result_has_medians_beside_every_value() -> None:
    report = FailoverResult(
        [300.0, 100.0, 200.0], [700.0], [5.0], [4.0], 20_000.0, [90.0, 80.0, 85.0], [600.0]
    ).to_json()
    assert report == {
        "leader_killed_ms": [300.0, 100.0, 200.0],
        "leader_silent_ms": [700.0],
        "all_killed_ms": [5.0],
        "all_started_ms": [4.0],
        "load": 20_000.0,
        "leader_killed_under_load_ms": [90.0, 80.0, 85.0],
        "leader_silent_under_load_ms": [600.0],
        "leader_killed_median_ms": 200.0,
        "leader_silent_median_ms": 700.0,
        "all_killed_median_ms": 5.0,
        "all_started_median_ms": 4.0,
        "leader_killed_under_load_median_ms": 85.0,
        "leader_silent_under_load_median_ms": 600.0,
    }
