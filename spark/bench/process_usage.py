"""CPU time and memory that child processes have used, from Linux's ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/<pid>/stat behind the name of the command in parentheses. The times are user and
# system time of the process and of its ended children: Spark ends idle workers after a minute.
_PARENT, _TIMES = 1, slice(11, 15)


def cpu_seconds() -> float:
    """Seconds of CPU time of this process and of all its descendants, including ended ones."""
    return sum(
        sum(map(int, stat_fields(pid)[_TIMES])) / _TICKS for pid in (os.getpid(), *descendants())
    )


def peak_memory(command: str) -> int:
    """The largest resident size (bytes) of a descendant whose command line has that word."""
    return max((peak_of(pid) for pid in descendants() if command in command_line(pid)), default=0)


def descendants() -> Iterator[int]:
    """All descendants of this process."""
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
    """The fields behind the command; none if the process has ended."""
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
