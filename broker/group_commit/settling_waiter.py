"""A waiter that says first that something is settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.group_commit.pending_batch import SendWaiter, StoredEarlier
from dledger.errors import ProposeError


class SettlingWaiter:
    """Calls ``settled`` once the outcome of a request is known, and passes the outcome on."""

    __slots__ = ("_waiter", "settled")

    def __init__(self, waiter: SendWaiter, settled: Callable[[], None]) -> None:
        self._waiter = waiter
        self.settled = settled
        """The caller must call it if the request is refused before anybody waits."""

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        """See :class:`~broker.group_commit.pending_batch.SendWaiter`."""
        self.settled()
        self._waiter.stored(first_offset, positions, earlier)

    def failed(self, error: ProposeError) -> None:
        """See :class:`~broker.group_commit.pending_batch.Waiter`."""
        self.settled()
        self._waiter.failed(error)
