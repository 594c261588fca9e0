"""The peak is measured for seconds, however long the steady load is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.bench.jobs import LoadShape, ProduceJob, SteadyJob
from broker.bench.results import Round, SteadyRound
from broker.cli.benchmark.measured import Measured, Request
from broker.cli.benchmark.steady import PEAK_ROUNDS_MAX, PEAK_SECONDS_MAX, measure_steady
from broker.command_error import CommandError


class Client:
    """Does no job, and notes each."""

    def __init__(self) -> None:
        self.jobs: list[ProduceJob | SteadyJob] = []

    def measure(self, job: ProduceJob) -> list[Round]:
        self.jobs.append(job)
        return [Round(1000, 1.0, 0.1, 0.2, 1.0, 2.0, 1000, 0)]

    def steady(self, job: SteadyJob) -> list[SteadyRound]:
        self.jobs.append(job)
        return [SteadyRound(0.0, 800, 1.0, 1.0, 2.0, 3.0, 4.0, 0.2, 0.1, 1)]


def bench(own: object, client: Client) -> Any:
    request = Request("steady", 1024, None, None, 60.0, 30, "sync", None, None, full=False)

    def produce_job(topics: tuple[str, ...], shape: LoadShape, warm_up: float) -> ProduceJob:
        return ProduceJob(topics, 1024, shape, warm_up, request.seconds, request.rounds, ())

    return SimpleNamespace(
        own=own,
        client=client,
        request=request,
        measured=Measured(3),
        pids=(),
        new_topic=lambda: "topic",
        produce_job=produce_job,
    )


def test_the_peak_takes_seconds_and_the_load_what_was_asked_for(tmp_path: Path) -> None:
    client = Client()
    measured = bench(SimpleNamespace(directory=tmp_path), client)
    measure_steady(measured, full=False)
    peak, load = client.jobs
    assert (peak.seconds, peak.rounds) == (PEAK_SECONDS_MAX, PEAK_ROUNDS_MAX)
    assert (load.seconds, load.rounds) == (60.0, 30)
    assert isinstance(load, SteadyJob)
    assert load.rate == 800.0
    assert measured.measured.steady.disk == [None]
    assert list(tmp_path.iterdir()) == []


def test_a_steady_load_needs_a_cluster_of_its_own() -> None:
    with pytest.raises(CommandError, match="own"):
        measure_steady(bench(None, Client()), full=False)
