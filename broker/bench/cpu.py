"""CPU time of processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_USER_TIME_FIELD = 11
"""Of ``/proc/PID/stat``, counted from behind the command's closing parenthesis; system time is
the next."""


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads of the processes so far; one that is gone counts 0."""
    return sum(map(_ticks, pids)) / _TICKS


def _ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return int(fields[_USER_TIME_FIELD]) + int(fields[_USER_TIME_FIELD + 1])
