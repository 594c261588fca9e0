"""The command line that `ps` shows for this process."""

from __future__ import annotations

import os

STAT, MEMORY = "/proc/self/stat", "/proc/self/mem"
ARGUMENTS_START_FIELD, ENVIRONMENT_END_FIELD = 45, 48
"""Of ``/proc/<pid>/stat``, counted from behind the command's closing parenthesis (proc(5))."""


def set_title(title: str) -> None:
    """Makes ``title`` the command line, cut where there is no room for it.

    It is read from where the kernel put arguments and environment when the process began, one
    behind the other. A text that runs on beyond the arguments is shown up to its first zero byte.
    The environment is kept: it is moved away before. A system that does not allow this goes on
    showing the old one.
    """
    for name, value in os.environb.items():
        os.putenv(name, value)  # a copy of its own, which is what other code finds from now on
    try:
        with open(STAT, "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[ARGUMENTS_START_FIELD]), int(fields[ENVIRONMENT_END_FIELD])
        with open(MEMORY, "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(os.fsencode(title)[: end - start - 1].ljust(end - start, b"\0"))
    except (OSError, ValueError, IndexError):
        return
