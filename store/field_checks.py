"""Checks the types and bounds of decoded fields.

A CRC proves that bytes are those that were written. It does not prove that they make sense. Code
that decodes JSON, MessagePack or text uses these checks. All raise :class:`ValueError` that says
what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, cast

from store.quoting import quoted

U32_MAX = (1 << 32) - 1
I64_MIN = -(1 << 63)
I64_MAX = (1 << 63) - 1
U64_MAX = (1 << 64) - 1

N = TypeVar("N", bound=tuple[Any, ...])


def integer(value: object, low: int = 0, high: int = I64_MAX) -> int:
    """A whole number from ``low`` to ``high``; a boolean is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{quoted(value)} is no number from {low} to {high}")
    return value


def text(value: object) -> str:
    """Text that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} is no text")
    value.encode()
    return value


def binary(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"{quoted(value)} is no binary")
    return value


def array(value: object, length: int | None = None) -> Sequence[object]:
    """A list or tuple, of ``length`` elements if that is given."""
    if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
        what = "array" if length is None else f"array of {length}"
        raise ValueError(f"{quoted(value)} is no {what}")
    return value


def file_name(value: object) -> str:
    """Text that can name a file within a directory: not empty, not ``.`` or ``..``, no ``/``."""
    name = text(value)
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{quoted(name)} is no name of a file")
    return name


# Tables of very many rows: a check of whole columns takes a fifth of the time.


def columns(value: object, count: int) -> list[Sequence[object]]:
    """The columns of an array of rows, each an array of ``count`` elements."""
    rows = array(value)
    if not (
        set(map(type, rows)) <= {list, tuple}
        and set(map(len, cast("Sequence[Sequence[object]]", rows))) <= {count}
    ):
        for row in rows:
            array(row, count)
    of_rows = cast("Sequence[Sequence[object]]", rows)
    return [list(map(itemgetter(field), of_rows)) for field in range(count)]


def named_rows(kind: type[N], *fields: Iterable[object]) -> Iterator[N]:
    """Named tuples of that type, of the columns of all their fields. It calls no function of
    Python for a row, as a constructor would."""
    return map(partial(tuple.__new__, kind), zip(*fields, strict=True))


def integers(column: Sequence[object], low: int = 0, high: int = I64_MAX) -> Sequence[int]:
    """The column, each element of it as :func:`integer`."""
    numbers = cast("Sequence[int]", column)
    if not (
        set(map(type, column)) <= {int}
        and low <= min(numbers, default=low)
        and max(numbers, default=high) <= high
    ):
        for value in column:
            integer(value, low, high)
    return numbers


def texts(column: Sequence[object]) -> Sequence[str]:
    """The column, each element of it as :func:`text`. Equal ones are one object."""
    if not set(map(type, column)) <= {str}:
        for value in column:
            text(value)
    distinct = {value: text(value) for value in set(column)}
    return list(map(distinct.__getitem__, column))
