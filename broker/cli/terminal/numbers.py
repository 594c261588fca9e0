"""Types of options that count or measure something."""

from __future__ import annotations

import math

import click

from store.quoting import quoted

PORT_MAX = 65_535
COUNT_MAX = (1 << 31) - 1
"""The largest i32, as RocketMQ's fields have it."""

COUNT = click.IntRange(1, COUNT_MAX)
PORT = click.IntRange(0, PORT_MAX)
"""0 is any port that is free."""


def seconds(text: str) -> float:
    """The type of an option that is a time to wait. Raises ``ValueError``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{quoted(text)} is not a number of seconds above 0")
    return value
