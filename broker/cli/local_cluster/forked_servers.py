"""Starts servers as forks of a command that has imported their modules.

Starting an interpreter and importing a broker's modules takes half a second of CPU time. Forked
servers share the imports of the command. A fork has a session and files of its own. `ps -e` and
`top` show the node's name, as for any server (``cli/terminal/foreground.py``); `ps -f` shows the
arguments of the command.

Only a process with one thread may fork: a lock that another thread holds at that moment would be
held for ever in the fork. A process with more threads, or with an unknown number, executes the
command line instead.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import BinaryIO, NoReturn

from broker.cli.local_cluster.managed_processes import DLEDGER, Child, execute
from broker.cli.terminal.program import CommandLine
from broker.cli.terminal.signals import TERMINATION_SIGNALS, handled_signals
from broker.config.variables import server_variables
from broker.exit_codes import EXIT_FAILED

TASKS = "/proc/self/task"
FIRST_FREE_FD = 3
"""The first descriptor behind stdin, stdout and stderr."""


class ForkedChild:
    """A fork of this process. Only this process waits for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for the number of a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float) -> int:
        """As :meth:`poll`, but waits for at most ``timeout`` seconds.

        Raises ``subprocess.TimeoutExpired`` if it still runs then.
        """
        code = self.poll()
        if code is None:
            fd = os.pidfd_open(self.pid)
            try:
                ended = select.poll()
                ended.register(fd, select.POLLIN)
                ended.poll(timeout * 1000)
            finally:
                os.close(fd)
            code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code


def fork(command_line: CommandLine, arguments: Sequence[str], log: BinaryIO) -> Child:
    """Starts one server as :func:`~broker.cli.local_cluster.managed_processes.execute` does, as a
    fork if possible."""
    if tuple(arguments[: len(DLEDGER)]) != DLEDGER or len(os.listdir(TASKS)) > 1:
        return execute(arguments, log)
    command_line.prepare(arguments[len(DLEDGER)])
    sys.stdout.flush()
    sys.stderr.flush()
    # Objects of the command are never collected in the fork: an open file would close a descriptor
    # that belongs to another file by then.
    gc.freeze()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # In the fork the command's handlers would end all processes of the command.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)
        pid = os.fork()
        if pid == 0:
            _run(command_line, arguments, log, mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return ForkedChild(pid)


def _run(
    command_line: CommandLine, arguments: Sequence[str], log: BinaryIO, mask: Iterable[int]
) -> NoReturn:
    """Runs in the fork, with the signals blocked; ``mask`` is the signal mask from then on."""
    code = EXIT_FAILED
    try:
        _become(log)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = command_line.run(arguments[len(DLEDGER) :])
    finally:
        # Nothing of the command may continue in the fork.
        try:
            if sys.exc_info()[0] is not None:
                sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(code)


def _become(log: BinaryIO) -> None:
    """Makes the fork a process as after exec: with its own session, signals and files."""
    os.setsid()
    for name in server_variables(os.environ):
        del os.environ[name]
    for sig in handled_signals():
        signal.signal(sig, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, number in ((nothing, 0), (log.fileno(), 1), (log.fileno(), 2)):
        os.dup2(fd, number)
    os.closerange(FIRST_FREE_FD, os.sysconf("SC_OPEN_MAX"))
