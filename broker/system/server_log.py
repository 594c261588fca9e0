"""The log of a server: all records from its level up, to stderr, in rotated files.

See :mod:`broker.system.log_lines` for its lines, and :mod:`broker.system.stderr_file` for rotation.
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
    """The settings of the log. ``level`` is one of ``LEVELS``, ``format`` one of ``FORMATS``."""

    level: str = "info"
    format: str = "text"
    limits: LogLimits = field(default_factory=LogLimits)


class ServerLog:
    """The log of this process. It replaces all handlers of the root logger."""

    def __init__(self, settings: LogSettings, node: str = "") -> None:
        """``node`` is in each line of JSON."""
        self._node = node
        self._settings = settings
        self._handler = RotatedStderr(StderrFile.find())
        self._handler.addFilter(RepeatedLineFilter(settings.limits, time.monotonic))
        self._format()
        set_level(settings.level)
        logging.basicConfig(handlers=[self._handler], force=True)

    def configure(self, settings: LogSettings) -> None:
        """Takes new settings. If the level is the same as before, the present level stays: an
        operator may have changed it since."""
        before, self._settings = self._settings, settings
        self._format()
        if settings.level != before.level:
            set_level(settings.level)

    def reopen(self) -> None:
        """Continues in a new file of the same name, if the present one was moved away."""
        try:
            self._handler.reopen()
        except OSError as error:
            log.warning("the log cannot be reopened: %s", error)

    def _format(self) -> None:
        limits = self._settings.limits
        self._handler.limits = limits
        self._handler.setFormatter(
            JsonFormatter(limits, self._node)
            if self._settings.format == "json"
            else TextFormatter(limits)
        )


class RotatedStderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic in stubs only
    """Writes to stderr, and rotates the file when it is full."""

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
        # If that fails, the log continues in the same file.
        with suppress(OSError):
            if file.size >= limits.file_size:
                file.rotate(limits.files)

    def reopen(self) -> None:
        """See :meth:`ServerLog.reopen`."""
        if self._file is not None:
            self._file.reopen()


def set_level(level: str) -> None:
    """Sets the level, one of ``LEVELS``, for the whole process."""
    logging.getLogger().setLevel(level.upper())
