"""``run``: seeds, until one breaks a promise, or all of them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import click

from broker.cli.terminal.numbers import COUNT
from broker.cli.terminal.options import DIRECTORY, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from simulator.cli.options import RunOptions, run_options, seeds
from simulator.cli.passed_seeds import Passed, PassedSeeds
from simulator.cli.summary import as_json, many, one_line
from simulator.runs.expected_coverage import (
    EXPECTED,
    EXPECTED_IN_BROKER_RUNS,
    EXPECTED_IN_MEMBERSHIP_RUNS,
    missing_coverage,
)
from simulator.worlds.outcome import Outcome

INTERRUPTED = 130


class Campaign(NamedTuple):
    """The seeds to run, and the options."""

    seeds: range
    options: RunOptions
    jobs: int
    keep_going: bool
    output: Output


@click.command(cls=Command, examples="  python -m simulator run --seeds 1-1000 --jobs 2\n")
@click.option(
    "--seeds", "chosen", type=seeds, metavar="A-B", help="Default: what the profile says."
)
@click.option("--jobs", type=COUNT, default=1, metavar="J", help="Processes.")
@click.option(
    "--resume",
    type=DIRECTORY,
    metavar="FILE",
    help="Leave out the seeds that passed on the same code, as FILE says, and add to it.",
)
@click.option("--keep-going", is_flag=True, help="Run all seeds, whichever break a promise.")
@run_options
@json_option
def run(
    *,
    chosen: tuple[int, int] | None,
    jobs: int,
    resume: Path | None,
    keep_going: bool,
    options: RunOptions,
    output: Output,
) -> int:
    """Run seeds until one breaks a promise."""
    first, last = chosen or options.profile.seeds
    campaign = Campaign(range(first, last + 1), options, jobs, keep_going, output)
    if resume is None:
        return _run(campaign, None)
    with closing(PassedSeeds(resume, options)) as passed:
        return _run(campaign, passed)


def _run(campaign: Campaign, passed: PassedSeeds | None) -> int:
    asked_seeds, options, jobs, keep_going, output = campaign
    earlier = {} if passed is None else passed.earlier
    seeds = [seed for seed in asked_seeds if seed not in earlier]
    progress = Progress("seeds", total=len(seeds))
    began = time.perf_counter()
    done: list[Outcome] = []
    broken: list[int] = []
    code = 0
    with closing(_outcomes(seeds, options, jobs)) as outcomes:
        try:
            for outcome in outcomes:
                done.append(outcome)
                output.document(as_json(outcome))
                if outcome.violation is None:
                    if passed is not None:
                        passed.add(Passed.of(outcome))
                else:
                    broken.append(outcome.seed)
                    progress.end()
                    if output is Output.TABLE:
                        print(one_line(outcome))
                    repeat = options.repeat_command(outcome.seed)
                    print(f"repeat it with: {repeat}", file=sys.stderr)
                    code = 1
                    if not keep_going:
                        break
                progress.add(said=f"{len(broken)} violations")
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
    pool = ProcessPoolExecutor(jobs, initializer=_begin_process)
    try:
        yield from pool.map(run_seed, asked, repeat(options))
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it


def run_seed(seed: int, options: RunOptions) -> Outcome:
    """One seed of a profile."""
    return options.of(seed).play()
