"""Half messages that are pending: no transaction is open yet."""

from __future__ import annotations

from collections.abc import Sequence

from broker.group_commit.pending_batch import SendWaiter, StoredEarlier
from dledger.errors import ProposeError


class PendingHalfMessages:
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, waiter: SendWaiter) -> SendWaiter:
        """The waiter for a half message, instead of ``waiter``. The message counts until it is
        called."""
        self.count += 1
        return _CountedWaiter(self, waiter)


class _CountedWaiter:
    """Passes the outcome of a half message on to its waiter, and counts it no more."""

    __slots__ = ("_pending", "_waiter")

    def __init__(self, pending: PendingHalfMessages, waiter: SendWaiter) -> None:
        self._pending = pending
        self._waiter = waiter

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        self._pending.count -= 1
        self._waiter.stored(first_offset, positions, earlier)

    def failed(self, error: ProposeError) -> None:
        self._pending.count -= 1
        self._waiter.failed(error)
