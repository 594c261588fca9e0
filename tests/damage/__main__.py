"""``python -m tests.damage --count 500``, or each kind: ``--each --count 1`` (and ``--spark``)."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.damage.campaign import Tally, damaged, undamaged
from tests.damage.damage_kinds import KINDS, PLANTERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--kind", choices=PLANTERS, metavar="KIND", help="of damage (default: any)")
    parser.add_argument("--each", action="store_true", help="plant each kind with each seed")
    parser.add_argument("--spark", action="store_true", help="let Spark audit them, and compare")
    args = parser.parse_args()
    tally = Tally()
    seeds = range(args.seed, args.seed + args.count)
    if args.spark:
        in_spark(seeds, tally, list(PLANTERS) if args.each else [args.kind])
    else:
        for seed in seeds:
            for of, planters in KINDS.items():
                if args.each:
                    for kind in planters:
                        damaged(seed, tally, kind, of)
                elif args.kind is None or args.kind in planters:
                    damaged(seed, tally, args.kind, of)
            undamaged(seed, tally)
    for what, planted in sorted(tally.planted.items()):
        print(f"{what:<40} planted {planted:>4}  found {tally.found[what]:>4}")
    for failure in tally.failures:
        print(failure)
    print(f"{len(tally.failures)} of {sum(tally.planted.values())} wrong")
    return 1 if tally.failures else 0


def in_spark(seeds: range, tally: Tally, kinds: Sequence[str | None]) -> None:
    """All in one session."""
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
    sys.exit(main())
