"""``shrink``: the smallest schedule of faults that still breaks the same promise."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from simulator.bugs import planted
from simulator.cli.options import Refusal, add_run_options, bug, positive, run_options
from simulator.cli.progress import Progress
from simulator.runs.scenario import Scenario
from simulator.runs.shrink import NotBrokenError, Shrinker

RUNS_MAX = 400


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "shrink",
        help="the smallest fault schedule that still fails, as a scenario file",
        epilog="example: python -m simulator shrink 17 --out tests/simulator/scenarios/17.txt",
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("--out", type=Path, metavar="FILE", help="instead of standard output")
    parser.add_argument("--bug", type=bug, metavar="ID", help="with a planted bug")
    parser.add_argument(
        "--runs", type=positive, default=RUNS_MAX, metavar="N", help="tries at most, %(default)s"
    )
    add_run_options(parser)
    parser.set_defaults(command=shrink)


def shrink(asked: argparse.Namespace) -> int:
    """Returns the exit code: 0 if there is a scenario."""
    run = run_options(asked).of(asked.seed)
    with ExitStack() as stack:
        if asked.bug is not None:
            stack.enter_context(planted(asked.bug))
            run = asked.bug.of(asked.seed)
        first = run.play()
    scenario = Scenario(
        asked.seed, run.nodes, run.seconds, first.schedule, world=run.world, bug=asked.bug
    )
    progress = Progress(asked.runs, "runs")

    def tried(runs: int, best: Scenario) -> None:
        progress.update(runs, f"{len(best.actions)} actions left of {len(scenario.actions)}")

    try:
        shrunk = Shrinker(scenario, runs_max=asked.runs, tried=tried).shrink()
    except NotBrokenError as error:
        raise Refusal(f"seed {asked.seed}: {error}") from error
    finally:
        progress.end()
    print(
        f"{len(scenario.actions)} actions became {len(shrunk.scenario.actions)} in "
        f"{shrunk.runs} runs: {shrunk.outcome.violation}",
        file=sys.stderr,
    )
    if asked.out is None:
        print(shrunk.scenario, end="")
        return 0
    try:
        asked.out.write_text(str(shrunk.scenario), encoding="utf-8")
    except OSError as error:
        raise Refusal(f"cannot write {asked.out}: {error.strerror}") from error
    print(f"run it with: python -m simulator scenario {asked.out}", file=sys.stderr)
    return 0
