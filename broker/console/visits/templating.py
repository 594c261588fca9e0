"""The templates of the pages, and their formats of numbers and times."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_STATIC = Path(__file__).parents[1] / "static"
NOTHING = "\N{EN DASH}"


def render(template: str, **values: Any) -> str:
    """The text of a template, with every value escaped for HTML."""
    return _environment().get_template(template).render(values)


@cache
def static_url(path: str) -> str:
    """The URL of a file of ``static/``. It contains a hash of the content, so that browsers do not
    use an old copy after an upgrade."""
    return f"/console/static/{path}?v={hashlib.sha256(static_bytes(path)).hexdigest()[:12]}"


@cache
def static_bytes(path: str) -> bytes:
    """A file of ``static/``."""
    return (_STATIC / path).read_bytes()


@cache
def static_files() -> frozenset[str]:
    """The files of ``static/``, by their paths in it."""
    return frozenset(
        path.relative_to(_STATIC).as_posix() for path in _STATIC.rglob("*") if path.is_file()
    )


def number(value: object) -> str:
    """A whole number with separators; a dash for anything else."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else NOTHING


def size(value: object) -> str:
    """Bytes in the unit with one to three digits before the point."""
    if not isinstance(value, int):
        return NOTHING
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value} B"


def moment(milliseconds: object, exact: bool = False) -> str:
    """A time in ms since 1970, as UTC to the second, or to the ms."""
    if not isinstance(milliseconds, int) or milliseconds <= 0:
        return NOTHING
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S") + (f".{milliseconds % 1000:03}" if exact else "")


def iso(milliseconds: object) -> str:
    """A time in ms since 1970 for a machine; empty for none."""
    text = moment(milliseconds)
    return text.replace(" ", "T") + "Z" if text[:1].isdigit() and " " in text[:11] else ""


def span(milliseconds: object) -> str:
    """A length of time in its largest unit, such as 3 h."""
    if not isinstance(milliseconds, int | float):
        return NOTHING
    seconds = max(milliseconds / 1000, 0)
    for unit, name in _SPANS:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return "0 s"


def plural(count: int, noun: str) -> str:
    """Such as 1 node, 2 nodes."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("broker.console"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, size=size, moment=moment, iso=iso, span=span, plural=plural
    )
    environment.globals["static"] = static_url
    return environment
