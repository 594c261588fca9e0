"""The results as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple

from broker.bench.failover import FailoverResult
from broker.bench.growth import MIB, Curve
from broker.bench.results import CPU_MESSAGES, SteadyLoad, Summary, percentiles
from broker.cli.benchmark.measured import Measured
from broker.cli.terminal.output import print_table

FAILOVERS = (
    ("leader killed, to the next acknowledgement", "leader_killed"),
    ("leader silent, to the next acknowledgement", "leader_silent"),
    ("all killed, from their restart to the next acknowledgement", "all_killed"),
    ("all killed, from the start of their processes", "all_started"),
    ("leader killed under load", "leader_killed_under_load"),
    ("leader silent under load", "leader_silent_under_load"),
)

LISTED_MAX = 20
"""Of so many waits each is printed."""


def ratios(these: Iterable[Summary], those: Iterable[Summary]) -> dict[str, float]:
    """The ratios of the rates of workloads with the same names, in the order of ``these``."""
    rates = {each.name: each.messages_per_second for each in those}
    return {
        each.name: each.messages_per_second / rates[each.name]
        for each in these
        if each.name in rates
    }


def print_measured(measured: Measured, baseline: Measured | None) -> None:
    """Prints the results of one cluster, compared with a single node in the same run."""
    for each in (measured, baseline):
        if each is not None and each.workloads:
            print(each.title)
            _print_workloads(each.workloads)
            if each.memory_bytes is not None:
                print(f"memory of all servers: {each.memory_bytes / MIB:,.0f} MiB")
            print()
    if measured.floor:
        print(f"floor: the bytes alone, relayed to {measured.nodes - 1} followers and written")
        _print_workloads(measured.floor)
        print()
    floors = {each.name: each for each in measured.floor}
    for summary in measured.workloads:
        if (floor := floors.get(summary.name)) is not None:
            rate = summary.messages_per_second / floor.messages_per_second
            cpu = summary.cpu_seconds_per_100k / floor.cpu_seconds_per_100k
            print(f"achieved / floor, {summary.name}: {rate:.2f}, CPU time {cpu:.1f} times")
    if baseline is not None and measured.secured:
        _print_cost(measured, baseline)
    elif baseline is not None:
        for name, ratio in ratios(measured.workloads, baseline.workloads).items():
            print(f"replicated / unreplicated, {name}: {ratio:.2f}")
    if measured.failover is not None:
        _print_failover(measured.failover)
    for curve in measured.growth:
        _print_curve(curve)
    if measured.steady is not None:
        _print_steady(measured.steady)


def _print_steady(load: SteadyLoad) -> None:
    print(f"steady: {load.rate:,.0f} messages a second; the peak is {load.peak:,.0f}")
    print("BARE: synced writes of 4 KiB meanwhile, a hundred a second; if they wait, messages do")
    print_table(
        (
            *("ROUND", "MSG/S", "P50 MS", "P99 MS", "P99.9 MS", "LONGEST", "SERVERS", "MEMORY MIB"),
            *("BARE P50", "BARE P99.9", "BARE LONGEST"),
        ),
        [
            (
                f"{number}",
                f"{each.messages / each.seconds:,.0f}",
                _number(each.p50_ms),
                _number(each.p99_ms),
                _number(each.p999_ms),
                _number(each.longest_ms),
                f"{each.server_cpu_seconds * CPU_MESSAGES / each.messages:.2f}",
                f"{each.memory_bytes / MIB:,.0f}",
                *map(_number, astuple(disk) if disk else (None, None, None)),
            )
            for number, (each, disk) in enumerate(zip(load.rounds, load.disk, strict=True), 1)
        ],
    )


def _print_cost(secured: Measured, without: Measured) -> None:
    rates = ratios(secured.workloads, without.workloads)
    before = {each.name: each for each in without.workloads}
    for each in secured.workloads:
        servers, client = (
            after / ago
            for after, ago in (
                (each.server_cpu_seconds_per_100k, before[each.name].server_cpu_seconds_per_100k),
                (each.client_cpu_seconds_per_100k, before[each.name].client_cpu_seconds_per_100k),
            )
        )
        print(
            f"secured / without, {each.name}: rate {rates[each.name]:.2f}, "
            f"CPU time of servers {servers:.2f} times, of the client {client:.2f} times"
        )


def _print_failover(failover: FailoverResult) -> None:
    result = failover.to_json()
    print(f"the load, where there is one: {failover.load:,.0f} messages a second, 80 % of the peak")
    for title, key in FAILOVERS:
        waits = result[f"{key}_ms"]
        told = " ".join(f"{wait:.0f}" for wait in waits)
        if len(waits) > LISTED_MAX:
            (p99,) = percentiles(waits, 0.99)
            told = f"{len(waits)} times; 99th percentile {p99:.0f}"
        print(f"{title}: median {result[f'{key}_median_ms']:.0f} ms ({told})")


def _print_workloads(workloads: Sequence[Summary]) -> None:
    print_table(
        ("WORKLOAD", "MSG/S", "RANGE", "P50 MS", "P99 MS", "CPU S", "SERVERS", "CLIENT", "DISK"),
        [
            (
                each.name,
                f"{each.messages_per_second:,.0f}",
                f"{each.slowest:,.0f}-{each.fastest:,.0f}",
                _number(each.p50_ms),
                _number(each.p99_ms),
                f"{each.cpu_seconds_per_100k:.2f}",
                f"{each.server_cpu_seconds_per_100k:.2f}",
                f"{each.client_cpu_seconds_per_100k:.2f}",
                _number(each.written_per_payload_byte),
            )
            for each in workloads
        ],
    )


def _print_curve(curve: Curve) -> None:
    what = "a MiB, the fixed cost apart" if curve.per_byte else "a message"
    print(f"\n{curve.name}: at most {curve.dearness:.2f} times the CPU time for {what}")
    print_table(
        ("", "MSG/S", "P50 MS", "P99 MS", "SERVERS", "CLIENT", "DISK", "MEMORY MIB", "RESTART MS"),
        [
            (
                f"{point.at:,}",
                f"{point.summary.messages_per_second:,.0f}",
                _number(point.summary.p50_ms),
                _number(point.summary.p99_ms),
                f"{point.summary.server_cpu_seconds_per_100k:.2f}",
                f"{point.summary.client_cpu_seconds_per_100k:.2f}",
                _number(point.summary.written_per_payload_byte),
                f"{point.memory_bytes / MIB:,.0f}",
                None if point.restart_ms is None else f"{point.restart_ms:,.0f}",
            )
            for point in curve.points
        ],
    )


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"
