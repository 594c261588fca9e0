"""Answers that are held back because the sender is beyond a quota. The message is stored at
once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker.group_commit.pending_batch import StoredEarlier
from broker.ingest.send_request import Sender
from broker.limits import QUOTAS
from broker.quotas.throttle import Caller
from broker.scheduled.recall_handle import RecallHandle
from dledger.errors import ProposeError


class HeldAnswer:
    """A waiter that passes its answer on to the sender after a delay. The other members are those
    of :class:`~broker.ingest.send_request.Sender`."""

    __slots__ = ("_due", "_loop", "_waiter")

    def __init__(self, waiter: Sender, loop: asyncio.AbstractEventLoop) -> None:
        self._waiter = waiter
        self._loop = loop
        self._due = 0.0

    def hold(self, debt: float) -> None:
        """Holds the answer for ``debt`` seconds, until the sender is within its quota again."""
        self._due = self._loop.time() + min(debt, QUOTAS.wait_seconds_max)

    @property
    def queue_id(self) -> int:
        """See :class:`~broker.ingest.send_request.Sender`."""
        return self._waiter.queue_id

    @queue_id.setter
    def queue_id(self, queue_id: int) -> None:
        self._waiter.queue_id = queue_id

    @property
    def recall_handle(self) -> RecallHandle | None:
        """See :class:`~broker.ingest.send_request.Sender`."""
        return self._waiter.recall_handle

    @recall_handle.setter
    def recall_handle(self, handle: RecallHandle | None) -> None:
        self._waiter.recall_handle = handle

    def caller(self) -> Caller:
        """See :class:`~broker.ingest.send_request.Sender`."""
        return self._waiter.caller()

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        """See :class:`~broker.group_commit.pending_batch.SendWaiter`."""
        self._later(self._waiter.stored, first_offset, positions, earlier)

    def failed(self, error: ProposeError) -> None:
        """See :class:`~broker.group_commit.pending_batch.Waiter`. A refusal goes at once: the
        client looks for another leader."""
        self._waiter.failed(error)

    def _later(self, answer: Callable[..., None], *given: object) -> None:
        if self._loop.time() >= self._due:
            answer(*given)
        else:
            self._loop.call_at(self._due, answer, *given)
