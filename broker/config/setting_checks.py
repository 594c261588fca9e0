"""What is said of a setting that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable

from store.quoting import QUOTED_MAX, quoted


class ConfigError(ValueError):
    """A configuration that cannot be used: one line that names the file, the key and the fault.

    ``key`` is the full key of the setting, as far as there is one.
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


def unknown(key: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that is no setting. It is one, because a misspelt setting that is
    silently ignored is found the day it was needed."""
    import difflib  # noqa: PLC0415 - of no use to a node that starts

    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return ConfigError(f"is no setting; {hint}", key)


def one_line(text: str) -> str:
    """As it is, where it is short and of one line, else quoted."""
    return text if len(text) <= QUOTED_MAX and text.isprintable() else quoted(text)
