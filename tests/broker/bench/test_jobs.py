"""Jobs between two processes, and what is made of their results."""

from __future__ import annotations

import os
import time

import pytest

from broker.bench.cpu_time import cpu_seconds
from broker.bench.failover import FailoverResult, waits_ms
from broker.bench.jobs import (
    FillJob,
    Job,
    LoadShape,
    ProbeJob,
    ProduceJob,
    ReplayJob,
    Round,
    decode_job,
    encode_job,
    summarise,
)


@pytest.mark.parametrize(
    "job",
    [
        ProduceJob("t", 10, LoadShape(128, 4), 0.5, 2.0, 3, (1, 2)),
        FillJob("t", 10, 1000),
        ReplayJob("t", 1000, 3, ()),
        ProbeJob("t", 10),
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
    report = FailoverResult([300.0, 100.0, 200.0], [5.0]).to_json()
    assert report == {
        "leader_killed_ms": [300.0, 100.0, 200.0],
        "all_killed_ms": [5.0],
        "leader_killed_median_ms": 200.0,
        "all_killed_median_ms": 5.0,
    }
