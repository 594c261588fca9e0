"""Resources that child processes have used, from Linux's ``/proc``.

Time by the clock says little on a machine that others use too. CPU time is the same on each day.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/<pid>/stat behind the name of the command, which is in parentheses. The times are
# its own, user's and system's, and those of its ended children: Spark ends workers that are idle
# for a minute, and their time must not be lost.
_PARENT, _TIMES = 1, slice(11, 15)


def cpu_seconds() -> float:
    """Seconds of CPU time of this process and of all below it, ended ones included."""
    return sum(
        sum(map(int, stat_fields(pid)[_TIMES])) / _TICKS for pid in (os.getpid(), *descendants())
    )


def peak_memory(command: str) -> int:
    """The most resident bytes of one process below, among those with a word in their command."""
    return max((peak_of(pid) for pid in descendants() if command in command_line(pid)), default=0)


def descendants() -> Iterator[int]:
    """The processes that this one has started, and their children."""
    parents = {
        int(name): int(fields[_PARENT])
        for name in os.listdir("/proc")
        if name.isdigit() and (fields := stat_fields(int(name)))
    }
    below = {os.getpid()}
    for pid in sorted(parents):
        line = [pid]
        while line[-1] in parents and line[-1] not in below:
            line.append(parents[line[-1]])
        if line[-1] in below:
            yield from (one for one in line[-2::-1])
            below.update(line)


def stat_fields(pid: int) -> list[str]:
    """None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", " ")
    except OSError:
        return ""


def peak_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            sizes = [line.split()[1] for line in file if line.startswith("VmHWM:")]
    except OSError:
        return 0
    return 1024 * int(sizes[0]) if sizes else 0
