"""Runs a server in the foreground until a signal ends it, for systemd and containers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import uvloop

from broker.cli.terminal.output import Output
from broker.cli.terminal.standard_streams import drop_output
from broker.system import service_manager
from broker.system.server_log import LogSettings
from broker.system.stderr_file import stdout_is_the_log
from dledger.node.service import StopSignal

log = logging.getLogger(__name__)

COMM = "/proc/self/comm"
COMM_MAX = 15
"""The bytes of a process name in the kernel (proc(5))."""


def show_as(name: str) -> None:
    """Sets the name of this process in `ps -e` and `top` to ``name``, or to the end of a long
    one."""
    with suppress(OSError), open(COMM, "w", encoding="ascii") as comm:
        comm.write(name[-COMM_MAX:])


@contextmanager
def hangups_held() -> Iterator[None]:
    """Within the block SIGHUP waits until :func:`run_until_stopped` takes it: it must not end a
    server that is still about to start."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def announce(server: Mapping[str, object], line: str, output: Output) -> None:
    """Prints the addresses of the server, and notifies the service manager. The server serves even
    if that cannot be written."""
    service_manager.ready(line)
    try:
        if output.document(server):
            return
        if stdout_is_the_log():
            log.info("%s", line)
        else:
            print(line, flush=True)
    except OSError as error:
        log.warning("%s; stdout cannot be written: %s", line, error)
        drop_output()


def tell_reopened(settings: LogSettings) -> None:
    """Logs that the log was reopened."""
    log.info(
        "the log was reopened, from %(log_level)s up, as %(log_format)s",
        {"log_level": settings.level, "log_format": settings.format},
    )


def run_until_stopped(
    serve: Callable[[StopSignal], Coroutine[None, None, int]], on_hangup: Callable[[], None]
) -> int:
    """Runs ``serve(stop)`` on a new event loop.

    SIGTERM stops it after draining, as a rolling restart needs. Ctrl-C, or a second SIGTERM, stops
    it at once. SIGHUP calls ``on_hangup``. If stderr is a terminal, SIGHUP means that it was
    closed, and stops the server at once. The log names the signal.
    """

    async def session() -> int:
        loop = asyncio.get_running_loop()
        stop = StopSignal(loop)

        def end(sign: signal.Signals, *, at_once: bool) -> None:
            log.info("%s: stops %s", sign.name, "at once" if at_once else "in order")
            stop.ask(at_once=at_once)

        on_ctrl_c = partial(end, signal.SIGINT, at_once=True)
        on_closed = partial(end, signal.SIGHUP, at_once=True)
        loop.add_signal_handler(signal.SIGTERM, partial(end, signal.SIGTERM, at_once=False))
        loop.add_signal_handler(signal.SIGINT, on_ctrl_c)
        loop.add_signal_handler(signal.SIGHUP, on_closed if _is_watched() else reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        stop.asked.add_done_callback(lambda _: service_manager.stopping())
        service_manager.start_watchdog(loop)
        return await serve(stop)

    def reload() -> None:
        service_manager.reloading()
        on_hangup()
        service_manager.reloaded()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(session())


def _is_watched() -> bool:
    try:
        return os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
