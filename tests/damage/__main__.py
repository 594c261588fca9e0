"""``python -m tests.damage --count 500``."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.damage.campaign import Tally, damaged, damaged_state, undamaged
from tests.damage.planting import PLANTERS
from tests.damage.stateplanting import STATE_PLANTERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--kind", help="of damage (default: any)")
    parser.add_argument("--spark", action="store_true", help="let Spark audit them, and compare")
    args = parser.parse_args()
    tally = Tally()
    seeds = range(args.seed, args.seed + args.count)
    if args.spark:
        in_spark(seeds, tally)
    else:
        for seed in seeds:
            if args.kind not in STATE_PLANTERS:
                damaged(seed, tally, args.kind)
            if args.kind not in PLANTERS:
                damaged_state(seed, tally, args.kind)
            undamaged(seed, tally)
    for what, planted in sorted(tally.planted.items()):
        print(f"{what:<40} planted {planted:>4}  found {tally.found[what]:>4}")
    for failure in tally.failures:
        print(failure)
    print(f"{len(tally.failures)} of {sum(tally.planted.values())} wrong")
    return 1 if tally.failures else 0


def in_spark(seeds: range, tally: Tally) -> None:
    """All in one session."""
    from spark.session import open_session  # noqa: PLC0415 - PySpark is an extra
    from tests.damage.sparkaudit import (  # noqa: PLC0415 - as above
        damaged_in_spark,
        undamaged_in_spark,
    )

    with TemporaryDirectory(prefix="dledger-damage-") as root, open_session("local[2]") as session:
        for seed in seeds:
            for name, check in (("damaged", damaged_in_spark), ("whole", undamaged_in_spark)):
                place = Path(root, f"{name}{seed}")
                check(session, place, seed, tally)
                shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main())
