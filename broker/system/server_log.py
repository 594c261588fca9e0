"""The log of a server: everything from its level up, to stderr, in files that rotate.

See :mod:`broker.system.log_lines` for its lines, and :mod:`broker.system.stderr_file` for when
stderr is a file that rotates.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

from broker.system.log_lines import JsonFormatter, LogLimits, RepeatedLineFilter, TextFormatter
from broker.system.stderr_file import StderrFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is written, and how. ``level`` and ``format`` are some of ``LEVELS`` and ``FORMATS``."""

    level: str = "info"
    format: str = "text"
    limits: LogLimits = field(default_factory=LogLimits)


class ServerLog:
    """The log of this process. Whatever the root logger had before is replaced."""

    def __init__(self, settings: LogSettings, node: str = "") -> None:
        """``node`` stands in each line of JSON."""
        self._node = node
        self._settings = settings
        self._handler = RotatedStderr(StderrFile.find())
        self._handler.addFilter(RepeatedLineFilter(settings.limits, time.monotonic))
        self._format()
        set_level(settings.level)
        logging.basicConfig(handlers=[self._handler], force=True)

    def configure(self, settings: LogSettings) -> None:
        """Takes other settings. A level that is not another stays as it is: it may have been
        changed by a command since."""
        before, self._settings = self._settings, settings
        self._format()
        if settings.level != before.level:
            set_level(settings.level)

    def reopen(self) -> None:
        """Goes on in a file of the same name, where somebody has moved the present one away."""
        try:
            self._handler.reopen()
        except OSError as error:
            log.warning("the log cannot be opened again: %s", error)

    def _format(self) -> None:
        limits = self._settings.limits
        self._handler.limits = limits
        self._handler.setFormatter(
            JsonFormatter(limits, self._node)
            if self._settings.format == "json"
            else TextFormatter(limits)
        )


class RotatedStderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic in stubs only
    """Writes to stderr, and begins another file when this one is full."""

    def __init__(self, file: StderrFile | None) -> None:
        super().__init__(sys.stderr)
        self.limits = LogLimits()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        super().emit(record)
        file, limits = self._file, self.limits
        if file is None or not limits.file_size:
            return
        # Where that cannot be done, the log goes on as it is.
        with suppress(OSError):
            if file.size >= limits.file_size:
                file.rotate(limits.files)

    def reopen(self) -> None:
        """See :meth:`ServerLog.reopen`."""
        if self._file is not None:
            self._file.reopen()


def set_level(level: str) -> None:
    """One of ``LEVELS``, for everything in this process."""
    logging.getLogger().setLevel(level.upper())
