"""Which rows of a ConsumeQueue a pull returns, joined where their records follow each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from store.message.batch import QUEUE_ROW
from store.message.twins import compiled_or

JoinedRows: TypeAlias = tuple[int, int, int, int, int, int]
"""Rows with consecutive records: the position of these in the commit log, their bytes, number of
the first row and size of its record, number of the last row and size of its record. Numbers count
from the first row that was looked at."""

Join: TypeAlias = Callable[
    [bytes, frozenset[int] | None, int, int], tuple[int, int, Sequence[JoinedRows]]
]


def join_rows_in_python(
    rows: bytes, codes: frozenset[int] | None, messages_max: int, bytes_max: int, /
) -> tuple[int, int, list[JoinedRows]]:
    """The rows whose tags code is in ``codes`` (None: all), until ``messages_max`` messages or
    ``bytes_max`` bytes of records are found. The first of them counts whatever its size.

    Returns how many rows were looked at, how many messages were found, and the messages.
    """
    joined: list[JoinedRows] = []
    looked_at = messages = total = 0
    start = first = first_size = end = last = last_size = 0
    for position, size, code in QUEUE_ROW.iter_unpack(rows):
        if codes is None or code in codes:
            if messages and (total + size > bytes_max or messages == messages_max):
                break
            messages += 1
            total += size
            if position != end or messages == 1:
                if messages > 1:
                    joined.append((start, end - start, first, first_size, last, last_size))
                start, first, first_size = position, looked_at, size
            end, last, last_size = position + size, looked_at, size
        looked_at += 1
    if messages:
        joined.append((start, end - start, first, first_size, last, last_size))
    return looked_at, messages, joined


def _sample(join: Join) -> object:
    places = ((100, 10, 1), (110, 20, -2), (130, 5, 3), (200, 7, 1), (207, 8, 1), (215, 100, 1))
    rows = b"".join(QUEUE_ROW.pack(*place) for place in places)
    return join(rows, None, 9, 60), join(rows, frozenset((1, -2)), 4, 999), join(b"", None, 1, 1)


join_rows: Join = compiled_or(join_rows_in_python, "join_rows", _sample)
