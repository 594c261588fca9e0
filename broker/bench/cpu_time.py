"""CPU time of processes."""

from __future__ import annotations

import time
from collections.abc import Iterable


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads of the processes so far; one that is gone counts 0.

    To the nanosecond: ``/proc`` counts in hundredths of a second; a round may have none.
    """
    return sum(map(_seconds, pids))


def _seconds(pid: int) -> float:
    try:
        return time.clock_gettime(_clock_of(pid))
    except OSError:
        return 0.0


def _clock_of(pid: int) -> int:
    """The clock that clock_getcpuclockid(3) gives: it counts while the process is scheduled."""
    scheduled = 2
    return ~pid << 3 | scheduled
