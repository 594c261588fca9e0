"""``python -m tests.fuzz.decoder_process SECONDS SEED CORPUS [NAME ...]`` feeds decoders.

One after the other, each for ``SECONDS``. Prints a line of JSON for each: ``name``, ``inputs``,
``defect`` (the path of the input that did it, or null) and ``what`` it did.

With atheris each decoder is fed in a fork of this process by libFuzzer, which keeps the inputs that
reach something new, and of those the smallest. Without it inputs are changed by chance alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import re
import sys
import time
import traceback
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING

import orjson

from tests.fuzz.mutation import mutated

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

INPUT_BYTES_MAX = 4096
HANG_SECONDS = 30
MEMORY_MIB_MAX = 1024
INPUTS_BETWEEN_LOOKS = 200
ROOMS = ["broker", "dledger", "store"]


def load_atheris() -> ModuleType | None:
    """The fuzzer, or None where it is not installed."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("atheris")
    return None


def main() -> None:
    seconds, seed, corpus = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    atheris = load_atheris()
    with (
        contextlib.nullcontext() if atheris is None else atheris.instrument_imports(include=ROOMS),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
    for name in sys.argv[4:] or targets:
        target: Target = targets[name]
        home = corpus / re.sub(r"\W+", "-", name)
        home.mkdir(parents=True, exist_ok=True)
        for sample in target.samples:
            (home / hashlib.sha1(sample, usedforsecurity=False).hexdigest()).write_bytes(sample)
        if atheris is None:
            inputs, defect, what = fed_by_chance(target, home, seconds, Random(f"{seed} {name}"))
        else:
            inputs, defect, what = fed_by_libfuzzer(atheris, target, home, seconds, seed)
        found = {"name": name, "inputs": inputs, "defect": defect, "what": what}
        sys.stdout.buffer.write(orjson.dumps(found) + b"\n")
        sys.stdout.flush()


def fed_by_libfuzzer(
    atheris: ModuleType, target: Target, home: Path, seconds: float, seed: int
) -> tuple[int, str | None, str]:
    """In a fork, which libFuzzer ends. Returns the number of inputs, the path of the defect's, and
    what it did."""
    told = home.with_suffix(".log")
    process = os.fork()
    if not process:
        with told.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        arguments = [
            f"-seed={seed % (1 << 31) + 1}",
            f"-max_total_time={max(1, round(seconds))}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-timeout={HANG_SECONDS}",
            f"-rss_limit_mb={MEMORY_MIB_MAX}",
            f"-artifact_prefix={home}.",
            "-print_final_stats=1",
            "-verbosity=0",
        ]
        atheris.Setup(["fuzz", *arguments, str(home)], target.read)
        atheris.Fuzz()
        os._exit(0)
    _, status = os.waitpid(process, 0)
    text = told.read_text(errors="replace")
    stat = re.search(r"number_of_executed_units: (\d+)", text)
    inputs = int(stat[1]) if stat else 0
    if not status:
        return inputs, None, ""
    wrote = re.search(r"Test unit written to (\S+)", text)
    what = re.search(r"^(?!==|INFO)\S*(?:Error|Exception|ERROR).*$", text, re.MULTILINE)
    return inputs, wrote[1] if wrote else str(told), what[0] if what else f"see {told}"


def fed_by_chance(
    target: Target, home: Path, seconds: float, rng: Random
) -> tuple[int, str | None, str]:
    """As :func:`fed_by_libfuzzer`, in this process and without it."""
    ends_at = time.monotonic() + seconds
    inputs = 0
    while time.monotonic() < ends_at:
        for _ in range(INPUTS_BETWEEN_LOOKS):
            data = mutated(rng, rng.choice(target.samples), target.samples)[:INPUT_BYTES_MAX]
            inputs += 1
            try:
                target.read(data)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
                path = home.with_suffix(".crash")
                path.write_bytes(data)
                what = "".join(traceback.format_exception_only(error)).strip()
                return inputs, str(path), what
    return inputs, None, ""


if __name__ == "__main__":
    main()
