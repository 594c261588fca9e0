"""``python -m simulator``: run seeds, or one seed again, event by event.

Exits 1 on the first violation, with the seed, what was violated, and the command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict

from simulator.cluster import Outcome, simulate

SEEDS_PER_JOB = 5
MINUTES = 1 / 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Runs whole clusters of the shipped code under virtual time.",
        epilog="example: python -m simulator run --seeds 1-100 --nodes 5",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run seeds until one breaks a promise")
    run.add_argument("--seeds", type=_seeds, default=(1, 100), metavar="A-B")
    run.add_argument("--jobs", type=_positive, default=1, metavar="J", help="processes")
    run.add_argument("--json", action="store_true", help="one JSON object a seed")
    replay = commands.add_parser("replay", help="run one seed again")
    replay.add_argument("seed", type=int)
    replay.add_argument("--trace", action="store_true", help="print one event a line")
    for command in (run, replay):
        command.add_argument("--nodes", type=int, choices=(3, 5), default=3)
        command.add_argument(
            "--minutes", type=float, default=MINUTES, metavar="M", help="simulated time with faults"
        )
    asked = parser.parse_args(arguments)
    # What nodes log is what they are made to suffer; the trace tells it, in order.
    logging.getLogger("dledger").addHandler(logging.NullHandler())
    return _replay(asked) if asked.command == "replay" else _run(asked)


def repeat_command(seed: int, nodes: int, minutes: float) -> str:
    """The one command that runs a seed again and shows every event."""
    return f"python -m simulator replay {seed} --nodes {nodes} --minutes {minutes!r} --trace"


def _replay(asked: argparse.Namespace) -> int:
    outcome = simulate(
        asked.seed,
        nodes=asked.nodes,
        seconds=60 * asked.minutes,
        show=print if asked.trace else None,
    )
    print(_line(outcome))
    return 0 if outcome.violation is None else 1


def _run(asked: argparse.Namespace) -> int:
    first, last = asked.seeds
    began = time.perf_counter()
    done: list[Outcome] = []
    with closing(_outcomes(range(first, last + 1), asked)) as outcomes:
        try:
            for outcome in outcomes:
                done.append(outcome)
                if asked.json:
                    print(json.dumps(asdict(outcome)))
                if outcome.violation is not None:
                    if not asked.json:
                        print(_line(outcome))
                    repeat = repeat_command(outcome.seed, asked.nodes, asked.minutes)
                    print(f"repeat it with: {repeat}", file=sys.stderr)
                    return 1
        except KeyboardInterrupt:
            print(_summary(done, time.perf_counter() - began), file=sys.stderr)
            return 130
    print(_summary(done, time.perf_counter() - began), file=sys.stderr)
    return 0


def _outcomes(seeds: range, asked: argparse.Namespace) -> Generator[Outcome, None, None]:
    seconds = 60 * asked.minutes
    if asked.jobs == 1:
        for seed in seeds:
            yield simulate(seed, nodes=asked.nodes, seconds=seconds)
        return
    chunks = [seeds[place : place + SEEDS_PER_JOB] for place in range(0, len(seeds), SEEDS_PER_JOB)]
    pool = ProcessPoolExecutor(asked.jobs)
    try:
        nodes, times = [asked.nodes] * len(chunks), [seconds] * len(chunks)
        for outcomes in pool.map(_simulate_all, chunks, nodes, times):
            yield from outcomes
    finally:
        pool.shutdown(cancel_futures=True)


def _simulate_all(seeds: range, nodes: int, seconds: float) -> list[Outcome]:
    return [simulate(seed, nodes=nodes, seconds=seconds) for seed in seeds]


def _line(outcome: Outcome) -> str:
    verdict = outcome.violation or "every promise kept"
    return (
        f"seed {outcome.seed} ({outcome.plan}): {verdict}; {outcome.acknowledged} acknowledged, "
        f"{outcome.unknown} unknown, last term {outcome.last_term}, {outcome.events} events, "
        f"{outcome.draws} draws, hash {outcome.digest}"
    )


def _summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    simulated = sum(outcome.simulated_seconds for outcome in outcomes)
    events = sum(outcome.events for outcome in outcomes)
    return (
        f"{len(outcomes)} seeds, every promise kept; {simulated:.0f} simulated seconds "
        f"in {seconds:.1f} s ({simulated / seconds:.0f} times as fast), "
        f"{events / seconds:.0f} events/s"
    )


def _seeds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    try:
        seeds = int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A-B, as in 1-100") from None
    if seeds[0] > seeds[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return seeds


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
