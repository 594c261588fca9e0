"""Errors of settings."""

from __future__ import annotations

from collections.abc import Iterable

from store.quoting import QUOTED_MAX, quoted


class ConfigError(ValueError):
    """An invalid configuration: one line with file, key and mistake.

    ``key`` is the full key of the setting, if there is one.
    """

    def __init__(self, what: str, key: str = "") -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key = key


def require(holds: object, key: str, value: object, wanted: str) -> None:
    """Raises :class:`ConfigError` for a value that is not ``wanted``."""
    if not holds:
        raise ConfigError(f"{quoted(value)} is not allowed; it may be {wanted}", key)


def require_between(key: str, value: int, minimum: int, maximum: int) -> None:
    """As :func:`require`, for a number."""
    require(minimum <= value <= maximum, key, value, f"from {minimum} to {maximum}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is probably meant; empty if none is."""
    import difflib  # noqa: PLC0415 - of no use to a node that starts

    return next(iter(difflib.get_close_matches(name, known, n=1)), "")


def unknown(key: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown key. It is an error because a misspelt setting must not be ignored
    silently."""
    known = list(known)
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
    return ConfigError(f"is not a setting; {hint}", key)


def one_line(text: str) -> str:
    """The text itself if it is short and one line, otherwise quoted."""
    return text if len(text) <= QUOTED_MAX and text.isprintable() else quoted(text)
