"""The steady load: 80 % of the peak, for as long as one likes."""

from __future__ import annotations

from dataclasses import replace

from broker.bench.disk_probe import DiskProbe
from broker.bench.jobs import LoadShape, SteadyJob
from broker.bench.results import SteadyLoad, summarise
from broker.cli.benchmark.measured import Bench, say
from broker.command_error import CommandError

SHARE = 0.8
PEAK = LoadShape(1, 256)
WARM_UP_SECONDS = 2.0
PEAK_ROUNDS_MAX, PEAK_SECONDS_MAX = 5, 5.0
"""However long the steady load is."""
LOG_SIZE_MAX = 1 << 30
"""Of the cluster's nodes, in bytes, so that segments roll and expire all the time."""
FULL_ROUNDS, FULL_SECONDS = 30, 60.0


def measure_steady(bench: Bench, *, full: bool) -> None:
    """Measures the peak of single messages in a closed loop, and then 80 % of it in an open one.
    ``full``: for half an hour."""
    if bench.own is None:
        raise CommandError("a steady load needs a cluster of the benchmark's own")
    topic = bench.new_topic()
    request = bench.request
    peak = measure_peak(bench, topic)
    rate = SHARE * peak
    if full:
        request = replace(request, rounds=FULL_ROUNDS, seconds=FULL_SECONDS)
    say(f"{bench.measured.title}: {rate:,.0f} messages a second")
    job = SteadyJob(
        (topic,), request.size, rate, WARM_UP_SECONDS, request.seconds, request.rounds, bench.pids
    )
    with DiskProbe(bench.own.directory) as probe:
        rounds = bench.client.steady(job)
    try:
        disk = [probe.latencies(each) for each in rounds]
    except OSError as error:
        raise CommandError(f"the writes beside the load failed: {error}") from error
    bench.measured.steady = SteadyLoad(peak, rate, rounds, disk)


def measure_peak(bench: Bench, topic: str) -> float:
    """The messages a second of single messages in a closed loop."""
    say(f"{bench.measured.title}: {PEAK.name}, the peak")
    job = replace(
        bench.produce_job((topic,), PEAK, WARM_UP_SECONDS),
        seconds=min(bench.request.seconds, PEAK_SECONDS_MAX),
        rounds=min(bench.request.rounds, PEAK_ROUNDS_MAX),
    )
    return summarise(PEAK.name, bench.client.measure(job)).messages_per_second
