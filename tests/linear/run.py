"""Runs every decoder and prints the steps: ``python -m tests.linear.run``, one JSON document.

In a process of its own, because the modules are instrumented when they are imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from itertools import pairwise

import orjson

from tests.linear.counting import Steps
from tests.linear.decoder import is_refusal
from tests.linear.instrument import install

SIZES = (250, 500, 1000)
"""How many units; each is twice the one before."""


def main() -> None:
    """Prints ``{"decoders": {name: {shape: [steps for each size]}}, "entered": [...], ...}``."""
    sys.setrecursionlimit(100_000)  # the matcher recurses once for each repetition
    steps = Steps()
    install(steps)
    samples = importlib.import_module("tests.linear.samples")
    decoders = importlib.import_module("tests.linear.decoders")
    importlib.import_module("tests.linear.feeding").lift_json_limits()

    def count(read: Callable[[bytes], object], data: bytes) -> int:
        before = steps.count
        try:
            read(data)
        except Exception as error:  # most inputs are nonsense
            if not is_refusal(error):
                raise
            str(error)
        return steps.count - before

    found = {
        decoder.name: {
            f"{begin!r} {unit!r} {end!r}": [
                count(decoder.read, begin + unit * size + end) for size in SIZES
            ]
            for begin, unit, end in decoder.shapes
        }
        for decoder in decoders.DECODERS
    }
    known = {
        kind: {
            name: [count(read, bytes(n % 251 for n in range(size))) for size in SIZES]
            for name, read in getattr(samples, kind).items()
        }
        for kind in ("QUADRATIC", "LINEAR")
    }
    sys.stdout.buffer.write(
        orjson.dumps(
            {
                "decoders": found,
                "samples": known,
                "entered": sorted(steps.entered),
                "elsewhere": decoders.ELSEWHERE,
            }
        )
    )


if all(larger == 2 * smaller for smaller, larger in pairwise(SIZES)) and __name__ == "__main__":
    main()
