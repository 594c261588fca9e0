"""Half messages that are pending: no transaction is open yet."""

from __future__ import annotations

from broker.group_commit.pending_batch import SendWaiter
from broker.group_commit.settling_waiter import SettlingWaiter


class PendingHalfMessages:
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, waiter: SendWaiter) -> SettlingWaiter:
        """The waiter for a half message, instead of ``waiter``. The message counts until it is
        settled."""
        self.count += 1
        return SettlingWaiter(waiter, self._settled)

    def _settled(self) -> None:
        self.count -= 1
