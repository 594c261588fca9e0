"""The seeds that passed already, in a file, so that a long run can be interrupted.

One JSON object a line. The first names the run: a digest of the source files, and the options. Each
further one is a seed that kept every promise, with the fields of :class:`Passed`. A file of other
code or other options starts empty: its seeds say nothing about these.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self, TextIO

import broker
import dledger
import simulator
import store
from broker.command_error import UsageError
from simulator.cli.options import RunOptions
from simulator.worlds.outcome import Outcome

PACKAGES = (store, dledger, broker, simulator)


@dataclass(frozen=True, slots=True)
class Passed:
    """A seed that kept every promise."""

    seed: int
    simulated_seconds: float
    events: int
    marks: tuple[str, ...]

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """The memory of a run."""
        marks = tuple(sorted(outcome.marks))
        return cls(outcome.seed, outcome.simulated_seconds, outcome.events, marks)


class PassedSeeds:
    """The file; :attr:`earlier` are the seeds of earlier runs. Close it when done."""

    def __init__(self, path: Path, options: RunOptions) -> None:
        """Raises :class:`UsageError` if the file cannot be written."""
        self.digest = source_digest()
        ran = {
            "code": self.digest,
            "profile": options.profile.name,
            "nodes": options.nodes,
            "minutes": options.minutes,
        }
        head = json.dumps(ran) + "\n"
        self.earlier = {passed.seed: passed for passed in _read(path, head)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("w")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        self._file.write(head)
        for passed in self.earlier.values():
            self.add(passed)

    def add(self, passed: Passed) -> None:
        """Notes a seed durably."""
        self._file.write(json.dumps(asdict(passed)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def source_digest() -> str:
    """The digest of all code that a run executes: 16 hexadecimal digits over the sources of the
    packages."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        [home] = package.__path__
        for path in sorted((*Path(home).rglob("*.py"), *Path(home).rglob("*.[ch]"))):
            digest.update(f"{package.__name__}/{path.relative_to(home)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _read(path: Path, head: str) -> list[Passed]:
    """The contents of the file, if it is of the same run. The last line may be cut off."""
    found: list[Passed] = []
    with suppress(OSError, ValueError, TypeError, KeyError), path.open() as file:
        if file.readline() == head:
            for line in file:
                told = json.loads(line)
                found.append(Passed(**{**told, "marks": tuple(told["marks"])}))
    return found
