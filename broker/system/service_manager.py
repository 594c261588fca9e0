"""Notifications to the service manager that started the server: sd_notify(3) of systemd.

A message is a datagram of lines ``NAME=value`` to the socket ``$NOTIFY_SOCKET``. Without the
variable nothing is sent. A lost message does not make the server fail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from threading import Event

log = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
WATCHDOG_USEC = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"
PINGS = 3
"""The number of pings within the time of the watchdog."""

_serves = Event()


def notify(*lines: str) -> bool:
    """Sends one message. Returns whether it was sent."""
    address = os.environ.get(NOTIFY_SOCKET, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # an abstract socket, unix(7)
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto("\n".join(lines).encode(), address)
    except OSError as error:
        log.debug("cannot send %s to the service manager: %s", lines[0], error)
        return False
    return True


def ready(status: str) -> None:
    """It serves."""
    _serves.set()
    notify("READY=1", f"STATUS={status}")


def stopping() -> None:
    """The server is stopping."""
    notify("STOPPING=1")


def reloading() -> None:
    """It reads its settings again, until :func:`reloaded`. Only who serves says so: the end of it
    is told as ``READY=1``, which would end the start of a server that waits for its peers."""
    if _serves.is_set():
        notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def reloaded() -> None:
    """It has read its settings."""
    if _serves.is_set():
        notify("READY=1")


def watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """The time without a message after which the watchdog kills this process; None without a
    watchdog."""
    microseconds = environ.get(WATCHDOG_USEC, "")
    if environ.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return None
    known = microseconds.isascii() and microseconds.isdecimal() and int(microseconds)
    return int(microseconds) / 1e6 if known else None


def start_watchdog(loop: asyncio.AbstractEventLoop) -> None:
    """Pings the watchdog regularly while the event loop runs."""
    seconds = watchdog_seconds(os.environ)
    if seconds is None:
        return
    pause = seconds / PINGS

    def ping() -> None:
        notify("WATCHDOG=1")
        loop.call_later(pause, ping)

    ping()
