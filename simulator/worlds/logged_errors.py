"""An exception that shipped code only logs and survives is a violation, unless it was expected.

A request handler that fails answers with an error; checks of transactions and pushes to clients
fail in the same way. Clients try again, and no promise seems to be broken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import extract_tb

from simulator.engine.violation import Violation
from store.errors import StoreError


class LoggedErrors(logging.Handler):
    """Makes a violation of each logged exception, except those of disks."""

    def __init__(self, report: Callable[[Violation], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or isinstance(error, OSError | StoreError):
            return
        frames = extract_tb(error.__traceback__)
        where = f" in {frames[-1].name}" if frames else ""
        self._report(Violation(f"nobody expected {error!r}{where}: {record.getMessage()}"))


@contextmanager
def logged_errors_reported(report: Callable[[Violation], None]) -> Iterator[None]:
    """While it is open, ``report`` gets each of them."""
    log, handler = logging.getLogger(), LoggedErrors(report)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
