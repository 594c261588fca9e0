"""Types of options with numbers."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from store.quoting import quoted
from store.text_numbers import decimal_number, whole_number

PORT_MAX = 65_535
COUNT_MAX = (1 << 31) - 1
"""The largest i32, the limit of RocketMQ's fields."""

_SIZE_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(rf"([0-9]{{1,12}})({'|'.join(_SIZE_UNITS)})")


class WholeRange(click.IntRange):
    """The type of an option or argument that is a whole number, with optional bounds.

    click's own type accepts all that Python's ``int`` does, such as ``1_0``.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See :class:`click.ParamType`."""
        if isinstance(value, str):
            try:
                value = whole_number(value)
            except ValueError:
                self.fail(f"{quoted(value)} is not a valid integer", param, ctx)
        converted: int = super().convert(value, param, ctx)
        return converted


COUNT = WholeRange(1, COUNT_MAX)
PORT = WholeRange(0, PORT_MAX)
"""A port; 0: any free port."""


def positive(text: str | float, unit: str) -> float:
    """A number above 0, whole or not. Raises ``ValueError``; its text names the ``unit``.

    click converts the default of an option too, which may already be a number.
    """
    try:
        value = decimal_number(str(text))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{quoted(text)} is not a number of {unit} above 0")
    return value


def seconds(text: str) -> float:
    """The type of an option that is a time to wait. Raises ``ValueError``."""
    return positive(text, "seconds")


def byte_size(text: str) -> int:
    """The type of an option that is a number of bytes. Raises ``ValueError``."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not a number of bytes such as 65536, 64KiB or 1MiB")
    return int(found[1]) * _SIZE_UNITS[found[2]]
