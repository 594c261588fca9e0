"""Running a server in the foreground until it is told to stop, as systemd or a container does."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress

import uvloop

from broker.cli.terminal.options import print_json
from broker.cli.terminal.standard_streams import drop_output
from broker.system.stderr_file import stdout_is_the_log

log = logging.getLogger(__name__)

COMM = "/proc/self/comm"
COMM_MAX = 15
"""Bytes of a process's name that the kernel keeps (proc(5))."""


def show_as(name: str) -> None:
    """Makes ``name``, or the end of a long one, what `ps -e` and `top` call this process."""
    with suppress(OSError), open(COMM, "w", encoding="ascii") as comm:
        comm.write(name[-COMM_MAX:])


def announce(server: Mapping[str, object], line: str, *, as_json: bool) -> None:
    """Prints where the server listens. It serves all the same where that cannot be written."""
    try:
        if as_json:
            print_json(server)
        elif stdout_is_the_log():
            log.info("%s", line)
        else:
            print(line, flush=True)
    except OSError as error:
        log.warning("%s; stdout cannot be written: %s", line, error)
        drop_output()


def run_until_stopped(
    serve: Callable[[asyncio.Future[None]], Coroutine[None, None, int]],
    on_hangup: Callable[[], None],
) -> int:
    """Runs ``serve(stopped)`` on a new event loop; ``stopped`` is done at Ctrl-C or SIGTERM.

    ``on_hangup`` is called at SIGHUP. Where a person watches stderr it says that the terminal is
    closed, and the server ends as well.
    """

    async def session() -> int:
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = loop.create_future()

        def stop() -> None:
            if not stopped.done():
                stopped.set_result(None)

        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, stop)
        loop.add_signal_handler(signal.SIGHUP, stop if _is_watched() else on_hangup)
        return await serve(stopped)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(session())


def _is_watched() -> bool:
    try:
        return os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
