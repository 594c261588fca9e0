"""``python -m tests.damage --count 500``."""

from __future__ import annotations

import argparse
import sys

from tests.damage.campaign import Tally, damaged, undamaged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--kind", help="of damage (default: any)")
    args = parser.parse_args()
    tally = Tally()
    for seed in range(args.seed, args.seed + args.count):
        damaged(seed, tally, args.kind)
        undamaged(seed, tally)
    for what, planted in sorted(tally.planted.items()):
        print(f"{what:<40} planted {planted:>4}  found {tally.found[what]:>4}")
    for failure in tally.failures:
        print(failure)
    print(f"{len(tally.failures)} of {2 * args.count} wrong")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
