"""Types of options that count or measure something."""

from __future__ import annotations

import math
from typing import Any

import click

from store.quoting import quoted
from store.text_numbers import decimal_number, whole_number

PORT_MAX = 65_535
COUNT_MAX = (1 << 31) - 1
"""The largest i32, as RocketMQ's fields have it."""


class WholeRange(click.IntRange):
    """The type of an option or argument that is a whole number, within bounds where they are given.

    click's own takes what Python's ``int`` does, such as ``1_0``.
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
"""0 is any port that is free."""


def positive(text: str | float, what: str) -> float:
    """A number above 0, with a point or not. Raises ``ValueError``, which calls it ``what``.

    click passes the default of an option through its type too; that may be a number already.
    """
    try:
        value = decimal_number(str(text))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{quoted(text)} is not a number of {what} above 0")
    return value


def seconds(text: str) -> float:
    """The type of an option that is a time to wait. Raises ``ValueError``."""
    return positive(text, "seconds")
