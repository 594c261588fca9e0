"""``python -m tests.soak``: exit 0 if nothing was found, 1 if something was, 2 on bad usage."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

import click

from broker.cli.terminal.numbers import WholeRange, positive
from broker.cli.terminal.options import DIRECTORY
from broker.cli.terminal.program import Command, run_program
from broker.command_error import UsageError
from tests.soak.network import isolate
from tests.soak.run import run


def minutes_of(text: str) -> float:
    """Minutes above 0."""
    return positive(text, "minutes")


@click.command(cls=Command, examples="  python -m tests.soak --minutes 60 --seed 7\n")
@click.option(
    "--minutes",
    metavar="M",
    type=minutes_of,
    default=1.0,
    help="Of faults (default: 1).",
)
@click.option(
    "--seed", metavar="S", type=WholeRange(0), help="Of the faults; drawn and told if left out."
)
@click.option("--nodes", type=click.Choice((3, 5)), default=3)
@click.option("--data", type=DIRECTORY, help="An empty directory, kept; else a temporary one.")
def main(minutes: float, seed: int | None, nodes: int, data: Path | None) -> int:
    """Run real brokers under faults, and check all that clients were told."""
    if seed is None:
        seed = SystemRandom().randrange(1 << 31)
        sys.argv += ["--seed", str(seed)]
    if data is not None and data.exists() and any(data.iterdir()):
        raise UsageError(f"{data} is not empty")
    isolate()
    print(f"repeat: python -m tests.soak --minutes {minutes:g} --seed {seed}", flush=True)
    with ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(TemporaryDirectory(prefix="dledger-soak-")))
        return _run(data, minutes, seed, nodes)


def _run(directory: Path, minutes: float, seed: int, nodes: int) -> int:
    summary = asyncio.run(
        run(
            directory,
            minutes=minutes,
            seed=seed,
            nodes=nodes,
            note=lambda line: print(line, file=sys.stderr, flush=True),
        )
    )
    for line in (*summary.record.findings, *summary.lines()):
        print(line)
    return 1 if summary.record.findings else 0


if __name__ == "__main__":
    sys.exit(run_program(main, "python -m tests.soak", sys.argv[1:]))
