"""Parses numbers in text from outside: options, fields of requests, properties.

Python's ``int`` and ``float`` accept too much: ``1_0``, digits of any alphabet, and white space
around them.
"""

from __future__ import annotations

import re

from store.quoting import quoted

_DECIMAL = re.compile(r"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?")


def whole_number(text: str | bytes) -> int:
    """The number that is written as at most one sign and decimal digits ``0`` to ``9``.

    Raises :class:`ValueError` for anything else, and for more than 4,300 digits: Python reads no
    more in linear time.
    """
    digits = text[1:] if text[:1] in ("-", "+", b"-", b"+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{quoted(text)} is not a whole number")
    return int(text)


def decimal_number(text: str) -> float:
    """A number without a sign. It may have a point and an exponent. ``inf`` if it is too large.

    Raises :class:`ValueError` for anything else.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{quoted(text)} is not a number")
    return float(text)
