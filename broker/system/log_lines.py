"""The lines of a server's log, as text or as JSON.

::

    2026-11-23T17:32:18.376Z INFO dledger.node.scrubber: n0: 7 of 9 bytes are free suppressed=2
    {"time":"2026-11-23T17:32:18.376Z","level":"INFO","logger":"dledger.node.scrubber",
     "node":"broker-a/n0","message":"n0: 7 of 9 bytes are free","free":7,"total":9,"suppressed":2}

Fields are the names in a call's text (``"%(free)d of %(total)d"``), which only JSON repeats, and
those in ``extra``. ``suppressed`` is the number of equal lines that were left out before this one;
``exception`` has a traceback.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")


class LogLimits(NamedTuple):
    """Limits of the log on stderr."""

    line_max: int = 2000
    """Characters of a line, and of a traceback."""

    field_max: int = 200
    """Characters of one field."""

    repeat_seconds: float = 10.0
    """A line is shown once in this time; of lines that clients can cause, one of each kind."""

    lines_max: int = 1024
    """The number of lines for which that is tracked."""

    file_size: int = 32 * 1024 * 1024
    """The size at which the file is rotated; 0: never."""

    files: int = 4
    """The number of files that are kept, with the newest."""


_NO_FIELDS = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "from_outside")
)
"""The attributes of every log record."""


_Line: TypeAlias = tuple[str, object]
"""The key of a repeated line: its logger, and its text with its fields, or its kind."""


class RepeatedLineFilter(logging.Filter):
    """Lets a line pass once in ``repeat_seconds``. The next one has the number of left out lines.

    Lines that clients can cause (``store.quoting.FROM_OUTSIDE``) may differ at will. Of these, one
    of each kind passes; the kind is the text in the source, without the values.
    """

    def __init__(self, limits: LogLimits, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds of a monotonic clock."""
        super().__init__()
        self._limits = limits
        self._clock = clock
        self._shown: OrderedDict[_Line, float] = OrderedDict()
        """The time at which each line was shown, oldest first."""
        self._suppressed: dict[_Line, int] = {}
        """The number of lines left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`."""
        if getattr(record, "from_outside", False):
            key = record.name, record.msg
        else:
            fields = _fields(record, self._limits)
            key = record.name, (record.getMessage()[: self._limits.line_max], *fields.items())
        now = self._clock()
        shown_at = self._shown.get(key)
        if shown_at is not None and now - shown_at < self._limits.repeat_seconds:
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            return False
        self._shown[key] = now
        self._shown.move_to_end(key)
        suppressed = self._suppressed.pop(key, 0)
        if suppressed:
            record.suppressed = suppressed
        if len(self._shown) > self._limits.lines_max:
            oldest, _ = self._shown.popitem(last=False)
            self._suppressed.pop(oldest, None)
        return True


class TextFormatter(logging.Formatter):
    """Time, level, logger, message and fields; line breaks become ``\\n``."""

    def __init__(self, limits: LogLimits) -> None:
        super().__init__()
        self._limits = limits

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        line = _cut(line, self._limits.line_max)
        fields = _fields(record, self._limits).items()
        parts = [line, *(f"{name}={_bare(str(value))}" for name, value in fields)]
        traceback = _traceback(self, record, self._limits)
        if traceback:
            parts.append(f"exception={traceback}")
        return " ".join(parts).replace("\r", "\\r").replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """An object with ``time``, ``level``, ``logger``, ``node``, ``message`` and the fields."""

    def __init__(self, limits: LogLimits, node: str) -> None:
        super().__init__()
        self._limits = limits
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        document: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "node": self._node,
            "message": _cut(record.getMessage(), self._limits.line_max),
        }
        named = record.args if isinstance(record.args, Mapping) else {}
        for name, value in {**_plain(named, self._limits), **_fields(record, self._limits)}.items():
            document.setdefault(name, value)
        traceback = _traceback(self, record, self._limits)
        if traceback:
            document["exception"] = traceback
        return json.dumps(document, separators=(",", ":"))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def _fields(record: logging.LogRecord, limits: LogLimits) -> dict[str, object]:
    """The fields of a record besides its text."""
    found = {name: value for name, value in vars(record).items() if name not in _NO_FIELDS}
    return _plain(found, limits)


def _plain(fields: Mapping[str, object], limits: LogLimits) -> dict[str, object]:
    """The fields as numbers, None or text."""
    return {
        name: value if isinstance(value, int | float | None) else _cut(str(value), limits.field_max)
        for name, value in fields.items()
    }


def _bare(text: str) -> str:
    """The text, quoted unless it is one word."""
    return text if text and text.isprintable() and not set(' "=') & set(text) else json.dumps(text)


def _traceback(
    formatter: logging.Formatter, record: logging.LogRecord, limits: LogLimits
) -> str | None:
    """The traceback, cut in the middle if it is long: the error itself is at the end."""
    if not record.exc_info:
        return None
    text = formatter.formatException(record.exc_info)
    if len(text) <= limits.line_max:
        return text
    half = limits.line_max // 2
    return f"{text[:half]}\n... ({len(text)} characters)\n{text[-half:]}"


def _cut(text: str, size_max: int) -> str:
    return text if len(text) <= size_max else f"{text[:size_max]}... ({len(text)} characters)"
