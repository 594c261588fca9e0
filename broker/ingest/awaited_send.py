"""A sender that a coroutine awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.group_commit.pending_batch import StoredEarlier
from broker.quotas.throttle import FindCaller
from broker.scheduled.recall_handle import RecallHandle
from dledger.errors import ProposeError


class AwaitedSend:
    """Waits for one message (see :class:`~broker.ingest.send_request.Sender`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, find_caller: FindCaller) -> None:
        self.caller = find_caller
        self.done: asyncio.Future[tuple[int, int]] = loop.create_future()
        """Offset and position."""
        self.queue_id = -1
        self.recall_handle: RecallHandle | None = None
        self.earlier: StoredEarlier | None = None
        """Where an earlier try was stored, if one was."""

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        self.earlier = earlier
        if not self.done.done():
            self.done.set_result((first_offset, positions[0]))

    def failed(self, error: ProposeError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
