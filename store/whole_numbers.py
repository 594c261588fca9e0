"""Whole numbers in text that others wrote: options, fields of requests, properties.

Python's ``int`` takes more than anybody means by a number: ``1_0`` is 10 to it, and so are digits
of any alphabet and white space around them.
"""

from __future__ import annotations

from store.quoting import quoted


def whole_number(text: str | bytes) -> int:
    """The number of decimal digits ``0`` to ``9`` after at most one sign.

    Raises :class:`ValueError` for anything else, and for more digits than Python reads in linear
    time (4,300).
    """
    digits = text[1:] if text[:1] in ("-", "+", b"-", b"+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{quoted(text)} is not a whole number")
    return int(text)
