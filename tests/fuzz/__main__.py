"""``python -m tests.fuzz``: exit 0 if nothing was found, 1 if something was, 2 on bad usage."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

import orjson

from store.counted import counted
from tests.fuzz.ports import attack_ports
from tests.linear.decoders import DECODERS

CORPUS = Path(__file__).parents[2] / "build/fuzz"
PARTS = ("decoders", "ports", "secured-ports")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Feeds every decoder and attacks every port of running servers.",
        epilog="example: python -m tests.fuzz --minutes 10 --seed 7",
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="in all (default: 3)")
    parser.add_argument("--seed", type=int, help="drawn and told if left out")
    parser.add_argument("--part", choices=PARTS, action="append", help="all if left out")
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help=f"default: {CORPUS}")
    args = parser.parse_args()
    seed = SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    print(f"repeat: python -m tests.fuzz --minutes {args.minutes:g} --seed {seed}", flush=True)
    parts = args.part or PARTS
    seconds = 60 * args.minutes / len(parts)
    findings: list[str] = []
    for part in parts:
        if part == "decoders":
            findings += feed_decoders(seconds, seed, args.corpus)
        else:
            findings += attack(seconds, seed, args.only, secured=part == "secured-ports")
    for finding in findings:
        print(finding)
    print(counted(len(findings), "finding"))
    return 1 if findings else 0


def feed_decoders(seconds: float, seed: int, corpus: Path) -> list[str]:
    """In a process of their own; see ``decoder_process.py``. Returns the findings."""
    each = str(seconds / len(DECODERS))
    command = (sys.executable, "-m", "tests.fuzz.decoder_process", each, str(seed), str(corpus))
    inputs, findings, read = 0, [], set()
    with subprocess.Popen(("nice", "-n", "15", *command), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = orjson.loads(line)
            read.add(told["name"])
            inputs += told["inputs"]
            if told["defect"]:
                findings.append(f"{told['name']}: {told['what']} ({told['defect']})")
    findings += [f"{each.name}: was not fed" for each in DECODERS if each.name not in read]
    print(f"{inputs:,} inputs to {len(read)} decoders", flush=True)
    return findings


def attack(seconds: float, seed: int, only: str, *, secured: bool) -> list[str]:
    """Of servers in a temporary directory. Returns the findings."""
    print("ports, with access control" if secured else "ports", flush=True)
    with tempfile.TemporaryDirectory(prefix="dledger-fuzz-") as directory:
        result = attack_ports(
            Path(directory) / "data",
            seconds=seconds,
            seed=seed,
            secured=secured,
            only=only,
            note=lambda line: print(line, flush=True),
        )
    print(f"{result.inputs:,} inputs to ports", flush=True)
    return result.findings


if __name__ == "__main__":
    sys.exit(main())
