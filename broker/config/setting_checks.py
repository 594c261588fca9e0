"""What is said of a setting that cannot be used."""

from __future__ import annotations

from store.quoting import QUOTED_MAX, quoted


class ConfigError(ValueError):
    """A configuration that cannot be used: one line that names the file, the key and the fault."""


def require(holds: object, key: str, value: object, wanted: str) -> None:
    """Raises :class:`ConfigError` for a value that is not ``wanted``."""
    if not holds:
        raise ConfigError(f"{key}: {quoted(value)} is not allowed; it may be {wanted}")


def require_between(key: str, value: int, minimum: int, maximum: int) -> None:
    """As :func:`require`, for a number."""
    require(minimum <= value <= maximum, key, value, f"from {minimum} to {maximum}")


def one_line(text: str) -> str:
    """As it is, where it is short and of one line, else quoted."""
    return text if len(text) <= QUOTED_MAX and text.isprintable() else quoted(text)
