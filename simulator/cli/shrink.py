"""``shrink``: the smallest schedule of faults that still breaks the same promise."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from broker.cli.terminal.numbers import COUNT, WholeRange
from broker.cli.terminal.options import DIRECTORY
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.command_error import CommandError
from simulator.bugs import Bug, planted
from simulator.cli.options import RunOptions, bug_option, run_options
from simulator.runs.scenario import Scenario
from simulator.runs.shrink import NotBrokenError, Shrinker

RUNS_MAX = 400


@click.command(
    cls=Command,
    examples="  python -m simulator shrink 17 --out tests/simulator/scenarios/17.txt\n",
)
@click.argument("seed", type=WholeRange())
@click.option("--out", type=DIRECTORY, metavar="FILE", help="Instead of standard output.")
@bug_option
@click.option(
    "--runs",
    type=COUNT,
    default=RUNS_MAX,
    metavar="N",
    help=f"Tries at most (default: {RUNS_MAX}).",
)
@run_options
def shrink(seed: int, out: Path | None, bug: Bug | None, runs: int, options: RunOptions) -> None:
    """The smallest fault schedule that still fails, as a scenario file."""
    run = options.of(seed) if bug is None else bug.of(seed)
    with planted(bug):
        first = run.play()
    scenario = Scenario(seed, run.nodes, run.seconds, first.schedule, world=run.world, bug=bug)
    progress = Progress("runs", total=runs)

    def tried(_runs: int, best: Scenario) -> None:
        progress.add(said=f"{len(best.actions)} actions left of {len(scenario.actions)}")

    try:
        with progress:
            shrunk = Shrinker(scenario, runs_max=runs, tried=tried).shrink()
    except NotBrokenError as error:
        raise CommandError(f"seed {seed}: {error}") from error
    print(
        f"{len(scenario.actions)} actions became {len(shrunk.scenario.actions)} in "
        f"{shrunk.runs} runs: {shrunk.outcome.violation}",
        file=sys.stderr,
    )
    if out is None:
        print(shrunk.scenario, end="")
        return
    try:
        out.write_text(str(shrunk.scenario), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {out}: {error.strerror}") from error
    print(f"run it with: python -m simulator scenario {out}", file=sys.stderr)
