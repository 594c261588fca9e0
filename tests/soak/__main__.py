"""``python -m tests.soak``: exit 0 if nothing was found, 1 if something was, 2 on bad usage."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.soak.network import isolate
from tests.soak.run import run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Real brokers under faults, and all that clients were told compared.",
        epilog="example: python -m tests.soak --minutes 60 --seed 7",
    )
    parser.add_argument("--minutes", type=_positive, default=1.0, help="of faults (default: 1)")
    parser.add_argument("--seed", type=int, help="of the faults; drawn and told if left out")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3)
    parser.add_argument("--data", type=Path, help="an empty directory, kept; else a temporary one")
    args = parser.parse_args()
    if args.seed is None:
        args.seed = SystemRandom().randrange(1 << 31)
        sys.argv += ["--seed", str(args.seed)]
    if args.data is not None and args.data.exists() and any(args.data.iterdir()):
        parser.error(f"{args.data} is not empty")
    isolate()
    print(f"repeat: python -m tests.soak --minutes {args.minutes:g} --seed {args.seed}", flush=True)
    if args.data is not None:
        return _run(args, args.data)
    with tempfile.TemporaryDirectory(prefix="dledger-soak-") as directory:
        return _run(args, Path(directory))


def _run(args: argparse.Namespace, directory: Path) -> int:
    summary = asyncio.run(
        run(
            directory,
            minutes=args.minutes,
            seed=args.seed,
            nodes=args.nodes,
            note=lambda line: print(line, file=sys.stderr, flush=True),
        )
    )
    for line in (*summary.record.findings, *summary.lines()):
        print(line)
    return 1 if summary.record.findings else 0


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 100_000.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes")
    return value


if __name__ == "__main__":
    sys.exit(main())
