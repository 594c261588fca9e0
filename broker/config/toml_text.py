"""TOML text: parses it within limits, finds the line of a key, and writes values."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from broker.config.setting_checks import ConfigError
from dledger.wire.endpoint import Endpoint
from store.quoting import shortened

CONFIG_SIZE_MAX = 64 << 10
"""Setting: bytes of a settings file, enough for hundreds of members. tomllib takes quadratic time
for some malicious files."""

DOTS_MAX = 500
"""Setting: dots in one line. For a key of many parts tomllib takes quadratic time."""

_TABLE = re.compile(r"\s*\[+([^\[\]]+)\]")
_KEY = re.compile(r"\s*([^=#\s][^=#]{0,200}?)\s*=")

Path = tuple[str, ...]
"""The parts of a key, tables first."""


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a text. Raises :class:`~broker.config.setting_checks.ConfigError`."""
    if len(text) > CONFIG_SIZE_MAX:
        raise ConfigError(f"has {len(text)} characters, at most {CONFIG_SIZE_MAX} are allowed")
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > DOTS_MAX:
            raise ConfigError(
                f"line {number} has {line.count('.')} dots, at most {DOTS_MAX} are allowed"
            )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError("is not TOML: it is nested too deeply") from None
    except ValueError as error:  # also for a number with thousands of digits
        raise ConfigError(f"is not TOML: {shortened(error)}") from error


def line_of(text: str, path: Path) -> int | None:
    """The number of the line that sets the key, or its nearest table; None if there is no such
    line.

    tomllib does not give lines. Text in a multi-line string may be mistaken for a key.
    """
    found, longest, table = None, 0, Path()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            here = table = _parts(header[1])
        elif key := _KEY.match(line):
            here = (*table, *_parts(key[1]))
        else:
            continue
        if len(here) > longest and here == path[: len(here)]:
            found, longest = number, len(here)
    return found


def _parts(text: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def toml_value(value: object) -> str:
    """A value of a setting in TOML."""
    if isinstance(value, Endpoint):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)
