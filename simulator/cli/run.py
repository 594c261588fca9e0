"""``run``: seeds, until one breaks a promise, or all of them."""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import repeat
from pathlib import Path

from simulator.cli.options import RunOptions, add_run_options, positive, run_options, seeds
from simulator.cli.passed_seeds import Passed, PassedSeeds
from simulator.cli.progress import Progress
from simulator.cli.summary import as_json, many, one_line
from simulator.runs.expected_coverage import (
    EXPECTED,
    EXPECTED_IN_BROKER_RUNS,
    EXPECTED_IN_MEMBERSHIP_RUNS,
    missing_coverage,
)
from simulator.worlds.outcome import Outcome

INTERRUPTED = 130

SEEDS_OF_A_PROCESS = 40
"""Worlds leave 8 MB each behind. It goes with their process: to collect it would take a twentieth
of the time."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run seeds until one breaks a promise",
        epilog="example: python -m simulator run --seeds 1-1000 --jobs 2",
    )
    parser.add_argument(
        "--seeds", type=seeds, metavar="A-B", help="what the profile says by default"
    )
    parser.add_argument("--jobs", type=positive, default=1, metavar="J", help="processes")
    parser.add_argument("--json", action="store_true", help="one JSON object a seed")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="leave out the seeds that passed on the same code, as FILE says, and add to it",
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="run all seeds, whichever break a promise"
    )
    add_run_options(parser)
    parser.set_defaults(command=run)


def run(asked: argparse.Namespace) -> int:
    """Returns the exit code: 1 where a seed broke a promise."""
    options = run_options(asked)
    first, last = asked.seeds or options.profile.seeds
    seeds = range(first, last + 1)
    if asked.resume is None:
        return _run(seeds, options, asked, None)
    with closing(PassedSeeds(asked.resume, options)) as passed:
        return _run(seeds, options, asked, passed)


def _run(
    asked_seeds: range, options: RunOptions, asked: argparse.Namespace, passed: PassedSeeds | None
) -> int:
    earlier = {} if passed is None else passed.earlier
    seeds = [seed for seed in asked_seeds if seed not in earlier]
    progress = Progress(len(seeds), "seeds")
    began = time.perf_counter()
    done: list[Outcome] = []
    broken: list[int] = []
    code = 0
    with closing(_outcomes(seeds, options, asked.jobs)) as outcomes:
        try:
            for outcome in outcomes:
                done.append(outcome)
                if asked.json:
                    print(json.dumps(as_json(outcome)), flush=True)
                if outcome.violation is None:
                    if passed is not None:
                        passed.add(Passed.of(outcome))
                else:
                    broken.append(outcome.seed)
                    progress.end()
                    if not asked.json:
                        print(one_line(outcome))
                    repeat = options.repeat_command(outcome.seed)
                    print(f"repeat it with: {repeat}", file=sys.stderr)
                    code = 1
                    if not asked.keep_going:
                        break
                progress.update(len(done), f"{len(broken)} violations")
        except KeyboardInterrupt:
            code = INTERRUPTED
    progress.end()
    print(many(done, time.perf_counter() - began), file=sys.stderr)
    counted = [earlier[seed] for seed in asked_seeds if seed in earlier]
    if passed is not None:
        print(
            f"{len(counted) + len(done) - len(broken)} of {len(asked_seeds)} seeds passed on code "
            f"{passed.digest}, {len(counted)} of them in earlier runs",
            file=sys.stderr,
        )
    if options.profile.thorough and code == 0:
        reached = {mark for outcome in done for mark in outcome.marks}
        missed = missing_coverage(
            reached.union(*(each.marks for each in counted)),
            (*EXPECTED, *EXPECTED_IN_BROKER_RUNS, *EXPECTED_IN_MEMBERSHIP_RUNS),
        )
        if missed:
            print(f"never got into: {', '.join(missed)}", file=sys.stderr)
            code = 1
    return code


def _outcomes(
    asked: Sequence[int], options: RunOptions, jobs: int
) -> Generator[Outcome, None, None]:
    if jobs == 1:
        for seed in asked:
            yield run_seed(seed, options)
        return
    seeds_of_a_pool = jobs * SEEDS_OF_A_PROCESS
    for begin in range(0, len(asked), seeds_of_a_pool):
        pool = ProcessPoolExecutor(jobs, initializer=_begin_process)
        try:
            yield from pool.map(run_seed, asked[begin : begin + seeds_of_a_pool], repeat(options))
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's matter
    gc.disable()


def run_seed(seed: int, options: RunOptions) -> Outcome:
    """One seed of a profile."""
    return options.of(seed).play()
