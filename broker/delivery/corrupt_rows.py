"""Rows of ConsumeQueues that are corrupt, as far as the rows alone show it.

Rows of a run are checked together, with NumPy. Its functions import it, so a starting broker does
not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.errors import DamagedError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.message.record import RECORD_FIXED_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIELDS = [("position", ">i8"), ("size", ">i4"), ("code", ">i8")]


class CorruptRowError(DamagedError):
    """A row of a queue that is not that of its message."""

    def __init__(self, queue: ConsumeQueue, offset: int) -> None:
        self.queue = queue
        self.offset = offset
        super().__init__(
            *queue.locate(offset),
            f"the row of offset {offset} leads to no such record; it is repaired from the log",
        )


def columns(data: Bytes) -> NDArray[Any]:
    """Rows that follow each other in a queue, by ``position``, ``size`` and ``code``."""
    import numpy as np  # noqa: PLC0415 - a node that starts waits for no NumPy

    return np.frombuffer(data, dtype=_FIELDS)


def first_corrupt_row(data: Bytes, start: int, end: int) -> int | None:
    """Which of these rows leads to no record of the log from ``start`` to ``end``, or to one that
    does not lie behind that of the row before. Of two rows out of order either may be wrong: the
    former is reported."""
    import numpy as np  # noqa: PLC0415 - a node that starts waits for no NumPy

    if not data:
        return None
    table = columns(data)
    positions, sizes = table["position"].astype(np.int64), table["size"].astype(np.int64)
    follows = positions[1:] > positions[:-1]
    if (
        start <= positions[0]
        and positions[-1] < end
        and sizes.min() >= RECORD_FIXED_SIZE
        and follows.all()
    ):
        return None
    wrong = (sizes < RECORD_FIXED_SIZE) | (positions < start) | (positions >= end)
    return int((wrong if wrong.any() else ~follows).argmax())
