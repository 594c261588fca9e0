"""Log lines of a server on stderr: short, few of a kind, in files that rotate.

``dledger up`` and ``dledger start`` append the stderr of a server to ``log/node.log``; other
starters of ``dledger node`` or ``dledger namesrv`` may do the same with any file. If stderr is such
a file, the server rotates it: ``node.log`` becomes ``node.log.1``, that ``node.log.2`` and so on. A
terminal, a pipe and systemd's journal are left alone.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice, pairwise

from broker.limits import LogLimits

LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STDOUT, _STDERR = 1, 2


def log_to_stderr(limits: LogLimits | None = None) -> None:
    """Everything from INFO up, with the time."""
    limits = limits or LogLimits()
    handler = RotatedStderr(limits)
    handler.setFormatter(BoundedFormatter(limits))
    handler.addFilter(RepeatedLineFilter(limits))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class RepeatedLineFilter(logging.Filter):
    """Of lines that anybody outside can cause (``store.quoting.FROM_OUTSIDE``) lets one of a kind
    pass in ``repeat_seconds``, which says how many there were since the one before.

    A kind is the text in the source, before its values are filled in.
    """

    def __init__(self, limits: LogLimits, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = limits.repeat_seconds
        self._kinds_max = limits.kinds_max
        self._clock = clock
        self._kinds: dict[tuple[str, object], tuple[float, int]] = {}
        """When the last one was shown, and how many were not since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`."""
        if not getattr(record, "from_outside", False):
            return True
        kind = (record.name, record.msg)
        now = self._clock()
        shown_at, more = self._kinds.get(kind, (-self._seconds, 0))
        if now - shown_at < self._seconds:
            self._kinds[kind] = (shown_at, more + 1)
            return False
        if len(self._kinds) >= self._kinds_max:  # somebody has made up texts
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        record.not_shown = more
        return True


class BoundedFormatter(logging.Formatter):
    """Cuts what is longer than ``line_max``, a traceback included."""

    def __init__(self, limits: LogLimits) -> None:
        super().__init__(LINE_FORMAT)
        self._line_max = limits.line_max

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """The line, and how many like it were not shown."""
        line = _cut(super().formatMessage(record), self._line_max)
        more = getattr(record, "not_shown", 0)
        return f"{line} (and {more} more like it, not shown)" if more else line

    def formatException(self, ei: object) -> str:  # noqa: N802 - as above
        """The traceback; what was raised stands at its end."""
        text = super().formatException(ei)  # type: ignore[arg-type]  # as it was given
        if len(text) <= self._line_max:
            return text
        half = self._line_max // 2
        return f"{text[:half]}\n... ({len(text)} characters)\n{text[-half:]}"


class RotatedStderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic in stubs only
    """Writes to stderr; see the module for when that rotates."""

    def __init__(self, limits: LogLimits) -> None:
        super().__init__(sys.stderr)
        self._limits = limits

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line, and begins another file if this one is full."""
        super().emit(record)
        limits = self._limits
        # Where that cannot be done, the log goes on as it is.
        with suppress(OSError):
            if limits.file_size and os.fstat(_STDERR).st_size >= limits.file_size:
                rotate_stderr(limits.files)


def rotate_stderr(files: int) -> None:
    """Begins a new file where stderr is one that is appended to; ``files`` are kept, this included.

    Raises ``OSError`` where a file cannot be renamed or made.
    """
    found = os.fstat(_STDERR)
    appends = fcntl.fcntl(_STDERR, fcntl.F_GETFL) & os.O_APPEND
    path = os.readlink(f"/proc/self/fd/{_STDERR}")
    if not (stat.S_ISREG(found.st_mode) and appends and os.path.samestat(found, os.stat(path))):
        return
    older = [path, *(f"{path}.{number}" for number in islice(count(1), files - 1))]
    for newer, old in reversed(list(pairwise(older))):
        with suppress(FileNotFoundError):
            os.replace(newer, old)
    if files == 1:
        os.unlink(path)
    both = os.path.samestat(found, os.fstat(_STDOUT))
    fresh = os.open(
        path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, stat.S_IMODE(found.st_mode)
    )
    try:
        for number in (_STDOUT, _STDERR) if both else (_STDERR,):
            os.dup2(fresh, number)
    finally:
        os.close(fresh)


def _cut(text: str, size_max: int) -> str:
    return text if len(text) <= size_max else f"{text[:size_max]}... ({len(text)} characters)"
