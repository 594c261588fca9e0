"""The resources that processes use: CPU time, bytes written to disks, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

N = TypeVar("N", int, float)

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """The usage of several processes since their start. Ended processes do not count."""

    cpu_seconds: float
    written_bytes: int
    """Bytes written to block devices, through the page cache or by direct I/O."""

    def since(self, before: Usage) -> Usage:
        """The usage between two moments."""
        return Usage(
            self.cpu_seconds - before.cpu_seconds, self.written_bytes - before.written_bytes
        )


def usage(pids: Iterable[int]) -> Usage:
    """User and system time of all threads, and the written bytes."""
    pids = tuple(pids)
    return Usage(cpu_seconds(pids), sum(_each(pids, _written)))


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads of the processes so far. Ended processes count 0.

    The resolution is nanoseconds: ``/proc`` counts in hundredths of a second, which is too coarse
    for a round.
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
    """The clock of clock_getcpuclockid(3), which counts while the process runs."""
    scheduled = 2
    return ~pid << 3 | scheduled


def _written(pid: int) -> int:
    """The written bytes in ``/proc/PID/io``, which only Linux has."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes":
            return int(value)
    return 0


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_SIZE
