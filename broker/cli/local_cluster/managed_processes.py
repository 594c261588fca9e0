"""The processes of a local cluster: starts them in the background, finds them, and ends them, by
pid.

A file ``pid`` identifies a process: its number, its start time in kernel ticks, and the inode of
the directory. Without the start time, the number could belong to another process by now. A copy of
the directory has another inode, so it has no process. Signals go through a pidfd, which always
means the same process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from broker.cli.local_cluster.atomic_file import open_nonblocking, write_atomically
from broker.cli.terminal.signals import signals_blocked
from broker.command_error import CommandError
from broker.config.variables import server_variables
from broker.system.bounded_file_read import read_bounded

DLEDGER = (sys.executable, "-m", "broker")
"""The beginning of the command line of a dledger process."""

PID_FILE = "pid"
PID_BYTES_MAX = 100
KILLED_SECONDS = 15.0
"""A killed process ends within this time, unless its disk is stuck."""

STATE_FIELD = 0
START_TIME_FIELD = 19
"""The field of the start time in ``/proc/<pid>/stat``, counted from the command's closing
parenthesis (proc(5))."""


class Child(Protocol):
    """A process that this program started. Exit codes are those of ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int:
        """Raises ``subprocess.TimeoutExpired``."""


Starter = Callable[[Sequence[str], BinaryIO], Child]
"""Starts a command line in the background; its output is appended to a file."""


def execute(arguments: Sequence[str], log: BinaryIO) -> Child:
    """Starts a process in a session of its own, so that a Ctrl-C here does not reach it."""
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=cluster_environment(),
        start_new_session=True,
    )


def cluster_environment() -> dict[str, str]:
    """The environment for servers of a local cluster. Their settings come only from their files."""
    theirs = server_variables(os.environ)
    return {name: value for name, value in os.environ.items() if name not in theirs}


class ManagedProcess:
    """A process that may run for ``directory``. Another program may have started it."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str], log: Path) -> None:
        """``arguments`` are the whole command line; its output is appended to ``log``."""
        self.name = name
        self.directory = directory
        self.log = log
        self._arguments = arguments
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running process, or None."""
        try:
            recorded = read_bounded(str(self.directory / PID_FILE), PID_BYTES_MAX)
            pid, started, *home = map(int, recorded.split())
            if home and home != [self._home()]:
                return None  # a copy of the directory: the process belongs to the original
        except (OSError, ValueError):
            return None
        return pid if _start_time(pid) == started else None

    @property
    def started_at(self) -> float | None:
        """When the running process started, in seconds of the monotonic clock, to a hundredth; or
        None."""
        pid = self.pid
        ticks = None if pid is None else _start_time(pid)
        if ticks is None:
            return None
        asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return ticks / os.sysconf("SC_CLK_TCK") - asleep

    def _home(self) -> int:
        """The inode of the directory, which no copy has."""
        return self.directory.stat().st_ino

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process that this program started; None while it runs."""
        return None if self._child is None else self._child.poll()

    def reap(self, timeout_s: float = 0.0) -> None:
        """Reaps the process that this program started, so that no zombie stays.

        Waits up to ``timeout_s`` seconds. Another program may have ended and replaced it.
        """
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout_s)

    def start(self, starter: Starter = execute) -> None:
        """Starts the process, in a session of its own.

        Afterwards the file ``pid`` is written, or there is no process, even if a signal comes.
        Raises :class:`CommandError` if one runs or its files cannot be written.
        """
        if self.pid is not None:
            raise CommandError(f"{self.name} is running already (pid {self.pid})")
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with signals_blocked(), open(self.log, "ab", opener=open_nonblocking) as log:
                self._child = starter(self._arguments, log)
                self._remember(self._child)
        except OSError as error:
            raise CommandError(
                f"{self.name} is not started: {_reason(error)}; "
                "its files must be writable, and its disk have room"
            ) from error

    def _remember(self, child: Child) -> None:
        """Writes the file ``pid``. If that fails the process is ended, because other programs could
        not find it."""
        started = _start_time(child.pid) or 0
        try:
            recorded = f"{child.pid} {started} {self._home()}\n"
            write_atomically(self.directory / PID_FILE, recorded)
        except OSError:
            os.kill(child.pid, signal.SIGKILL)
            self.reap(KILLED_SECONDS)
            raise

    def last_words(self) -> str:
        """The last log line of the process, which says why it ended."""
        try:
            with open(self.log, "rb", opener=open_nonblocking) as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def describe_end(self) -> str:
        """How the process ended, with its last log line."""
        code = self.exit_code
        if code is None:
            return f"{self.name} is not running any more"
        if code < 0:
            return f"{self.name} was killed by signal {-code}"
        return f"{self.name} ended with exit code {code}: {self.last_words() or 'its log is empty'}"


def end_processes(processes: Sequence[ManagedProcess], *, kill: bool) -> dict[str, int]:
    """Ends running processes, and waits until they are gone. Returns their pids by name.

    ``kill`` sends SIGKILL at once. Otherwise SIGINT comes first, and the processes stop without
    draining. Processes that still run after ``KILLED_SECONDS`` get SIGKILL.
    """
    with ExitStack() as stack:
        running: dict[int, ManagedProcess] = {}
        pids: dict[str, int] = {}
        for process in processes:
            found = _open_pidfd(process)
            if found is not None:
                fd, pids[process.name] = found
                stack.callback(os.close, fd)
                running[fd] = process
        waiting = list(running)
        for sig in (signal.SIGKILL,) if kill else (signal.SIGINT, signal.SIGKILL):
            for fd in waiting:
                _signal(fd, sig)
            waiting = _wait(waiting, KILLED_SECONDS)
        if waiting:
            names = ", ".join(running[fd].name for fd in waiting)
            raise CommandError(f"{names}: still there after SIGKILL; is its disk stuck?")
        for process in running.values():
            (process.directory / PID_FILE).unlink(missing_ok=True)
        for process in processes:
            process.reap()
    return pids


def _open_pidfd(process: ManagedProcess) -> tuple[int, int] | None:
    pid = process.pid
    if pid is None:
        return None
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if process.pid == pid:  # still the same process, so this is its descriptor
        return fd, pid
    os.close(fd)
    return None


def _signal(fd: int, sig: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(fd, sig)
    except ProcessLookupError:
        return


def _wait(fds: Sequence[int], timeout_s: float) -> list[int]:
    """Waits up to ``timeout_s``; returns the pidfds of processes that still run. A pidfd is
    readable once its process has ended."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    waiting = list(fds)
    while waiting:
        ready = poll.poll(timeout_s * 1000)
        if not ready:
            break
        for fd, _event in ready:
            poll.unregister(fd)
            waiting.remove(fd)
    return waiting


def _reason(error: OSError) -> str:
    return ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)


def _start_time(pid: int) -> int | None:
    """The start time of the process in clock ticks since boot; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[STATE_FIELD] in "ZX" else int(fields[START_TIME_FIELD])
