"""``python -m tests.damage --count 500``, or each kind: ``--each --count 1`` (and ``--spark``)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from broker.cli.terminal.numbers import COUNT
from broker.cli.terminal.program import Command, run_program
from tests.damage.campaign import Tally, damaged, undamaged
from tests.damage.damage_kinds import KINDS, PLANTERS


@click.command(cls=Command, examples="  python -m tests.damage --each --count 1\n")
@click.option("--count", type=COUNT, default=500)
@click.option("--seed", type=int, default=0, help="The first one (default: 0).")
@click.option("--kind", type=click.Choice(list(PLANTERS)), metavar="KIND", help="Default: any.")
@click.option("--each", is_flag=True, help="Plant each kind with each seed.")
@click.option("--spark", is_flag=True, help="Let Spark audit them, and compare.")
def main(count: int, seed: int, kind: str | None, each: bool, spark: bool) -> int:
    """Plant damage in replicas, and let the checkers find it."""
    tally = Tally()
    seeds = range(seed, seed + count)
    if spark:
        in_spark(seeds, tally, list(PLANTERS) if each else [kind])
    else:
        for number in seeds:
            for of, planters in KINDS.items():
                if each:
                    for one in planters:
                        damaged(number, tally, one, of)
                elif kind is None or kind in planters:
                    damaged(number, tally, kind, of)
            undamaged(number, tally)
    for what, planted in sorted(tally.planted.items()):
        print(f"{what:<40} planted {planted:>4}  found {tally.found[what]:>4}")
    for failure in tally.failures:
        print(failure)
    print(f"{len(tally.failures)} of {sum(tally.planted.values())} wrong")
    return 1 if tally.failures else 0


def in_spark(seeds: range, tally: Tally, kinds: Sequence[str | None]) -> None:
    """Runs all seeds in one Spark session."""
    from spark.session import open_session  # noqa: PLC0415 - PySpark is an extra
    from tests.damage.spark_audit import (  # noqa: PLC0415 - as above
        damaged_in_spark,
        undamaged_in_spark,
    )

    with TemporaryDirectory(prefix="dledger-damage-") as root, open_session("local[2]") as session:
        for seed in seeds:
            for kind in kinds:
                damaged_in_spark(session, Path(root, f"{seed}"), seed, tally, kind)
                shutil.rmtree(Path(root, f"{seed}"))
            undamaged_in_spark(session, Path(root, f"{seed}"), seed, tally)
            shutil.rmtree(Path(root, f"{seed}"))


if __name__ == "__main__":
    sys.exit(run_program(main, "python -m tests.damage", sys.argv[1:]))
