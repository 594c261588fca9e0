"""Runs a server in the foreground until a signal ends it, as systemd or a container does."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial

import uvloop

from broker.cli.terminal.options import print_json
from broker.cli.terminal.standard_streams import drop_output
from dledger.node.service import StopSignal

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
        else:
            print(line, flush=True)
    except OSError as error:
        logging.getLogger(__name__).warning("%s; stdout cannot be written: %s", line, error)
        drop_output()


def run_until_stopped(serve: Callable[[StopSignal], Coroutine[None, None, int]]) -> int:
    """Runs ``serve(stop)`` on a new event loop.

    SIGTERM asks it to stop in order, as a rolling restart wants it. Ctrl-C, or a second SIGTERM,
    asks it to stop at once.
    """

    async def session() -> int:
        loop = asyncio.get_running_loop()
        stop = StopSignal(loop)
        loop.add_signal_handler(signal.SIGTERM, partial(stop.ask, at_once=False))
        loop.add_signal_handler(signal.SIGINT, partial(stop.ask, at_once=True))
        return await serve(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(session())
