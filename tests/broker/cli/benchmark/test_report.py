"""What the tables of `dledger bench` say of results."""

from __future__ import annotations

import pytest

from broker.bench.failover import FailoverResult
from broker.bench.growth import Curve, Point
from broker.bench.jobs import LoadShape
from broker.bench.results import DiskLatencies, Round, SteadyLoad, SteadyRound, Summary
from broker.cli.benchmark.measured import LOAD_SHAPES, Measured, Request
from broker.cli.benchmark.report import print_measured, ratios


def summary(name: str, rate: float, cpu: float, written: float | None = None) -> Summary:
    return Summary(name, rate, rate, rate, None, None, cpu, 0.0, written)


def round_of(rate: int, servers: float, client: float = 0.1, written: int = 0) -> Round:
    """CPU seconds are of 100,000 messages."""
    share = rate / 100_000
    return Round(rate, 1.0, client * share, servers * share, None, None, rate, written)


def test_only_workloads_of_both_are_compared() -> None:
    these = [summary("batches", 300.0, 1.0), summary("replay", 5.0, 1.0)]
    assert ratios(these, [summary("batches", 400.0, 1.0)]) == {"batches": 0.75}


def test_every_result_stands_beside_its_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    points = [Point(10, summary("10", 9.0, 2.0), 1 << 20), Point(100, summary("100", 8.0, 3.0), 0)]
    measured = Measured(
        3,
        rounds={"batches": [round_of(300, 1.1, written=1170)]},
        floor=[summary("batches", 400.0, 0.6)],
        failover=FailoverResult(
            [80.0] * 99 + [90.0],
            [400.0, 500.0, 450.0],
            [250.0],
            [200.0],
            20_000.0,
            [95.0, 105.0, 100.0],
            [600.0],
        ),
        growth=[Curve("queues in use", points)],
        memory_bytes=300 << 20,
        steady=SteadyLoad(
            50_000.0,
            40_000.0,
            [SteadyRound(7.0, 80_000, 2.0, 1.5, 7.0, 12.25, 31.0, 1.6, 0.8, 400 << 20)],
            [DiskLatencies(0.25, 5.5, 151.5)],
        ),
    )
    print_measured(measured, Measured(1, rounds={"batches": [round_of(600, 0.5)]}))

    said = capsys.readouterr().out
    assert "achieved / floor, batches: 0.75, CPU time 2.0 times" in said
    assert "replicated / unreplicated, batches: 0.50" in said
    assert "memory of all servers: 300 MiB" in said
    assert "leader silent, to the next acknowledgement: median 450 ms (400 500 450)" in said
    assert "all killed, from the start of their processes: median 200 ms (200)" in said
    assert "leader killed under load: median 100 ms (95 105 100)" in said
    assert "leader silent under load: median 600 ms (600)" in said
    assert "20,000 messages a second" in said
    assert "leader killed" in said
    assert "median 80 ms (100 times; 99th percentile 80)" in said
    assert "queues in use: at most 1.50 times the CPU time for a message" in said
    assert " 3.90" in said
    assert "steady: 40,000 messages a second; the peak is 50,000" in said
    assert "12.25" in said
    assert "151.50" in said


def test_what_security_costs_is_told_of_medians(capsys: pytest.CaptureFixture[str]) -> None:
    secured, without = Measured(3, secured=True), Measured(3)
    for servers in (1.0, 9.0, 1.5):
        secured.add({"singles": [round_of(450, 2 * servers, client=0.3)]})
        without.add({"singles": [round_of(500, servers, client=0.2)]})
    print_measured(secured, without)

    said = capsys.readouterr().out
    assert "3 nodes, secured\n" in said
    assert (
        "secured / without, singles: rate 0.90, "
        "CPU time of servers 2.00 times, of the client 1.50 times"
    ) in said
    assert "unreplicated" not in said


@pytest.mark.parametrize(
    ("batch", "inflight", "shapes"),
    [
        (None, None, LOAD_SHAPES),
        (128, None, (LoadShape(128, 4),)),
        (None, 32, (LoadShape(1, 32),)),
        (1, None, (LoadShape(1, 1),)),
    ],
)
def test_options_give_the_shapes(
    batch: int | None, inflight: int | None, shapes: tuple[LoadShape, ...]
) -> None:
    request = Request("all", 1024, batch, inflight, 2.0, 3, "sync", None, None, False)
    assert tuple(request.shapes) == tuple(shapes)
