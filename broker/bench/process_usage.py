"""What processes take of the machine: CPU time, bytes written to disks, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

N = TypeVar("N", int, float)

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """Of processes together, since they began; one that is gone counts nothing."""

    cpu_seconds: float
    written_bytes: int
    """Handed to block devices, through the page cache or past it."""

    def since(self, before: Usage) -> Usage:
        """What was used between two moments."""
        return Usage(
            self.cpu_seconds - before.cpu_seconds, self.written_bytes - before.written_bytes
        )


def usage(pids: Iterable[int]) -> Usage:
    """User and system time of all threads, and the bytes that they had written."""
    pids = tuple(pids)
    return Usage(cpu_seconds(pids), sum(_each(pids, _written)))


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads of the processes so far; one that is gone counts 0.

    To the nanosecond: ``/proc`` counts in hundredths of a second; a round may have none.
    """
    return sum(_each(pids, lambda pid: time.clock_gettime(_clock_of(pid))))


def memory_bytes(pids: Iterable[int]) -> int:
    """Resident memory of the processes; pages that several share count for each."""
    return sum(_each(pids, _resident))


def _each(pids: Iterable[int], read: Callable[[int], N]) -> Iterable[N]:
    for pid in pids:
        try:
            yield read(pid)
        except OSError:
            continue


def _clock_of(pid: int) -> int:
    """The clock that clock_getcpuclockid(3) gives: it counts while the process is scheduled."""
    scheduled = 2
    return ~pid << 3 | scheduled


def _written(pid: int) -> int:
    """Of ``/proc/PID/io``, which systems other than Linux do not have."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes":
            return int(value)
    return 0


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_SIZE
