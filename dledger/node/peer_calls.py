"""Questions to peers outside the Raft protocol; each gets one answer, or none in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from dledger.node.lifecycle import Lifecycle
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    ServiceMessage,
)

Question: TypeAlias = FetchRequest | CheckpointRequest
Answer: TypeAlias = FetchResponse | CheckpointResponse

ANSWER_SECONDS = 5.0


class _Waiting(NamedTuple):
    peer: str
    done: Callable[[Answer | None], None]
    timer: asyncio.TimerHandle


class PeerCalls:
    """The questions of one node that wait for their answers."""

    def __init__(
        self,
        *,
        send: Callable[[str, ServiceMessage], None],
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
    ) -> None:
        self._send = send
        self._lifecycle = lifecycle
        self._loop = loop
        self._last_number = 0
        self._waiting: dict[int, _Waiting] = {}

    def call(
        self, peer: str, question: Callable[[int], Question], done: Callable[[Answer | None], None]
    ) -> None:
        """Asks ``question(number)``; ``done`` gets the answer, or ``None`` after five seconds."""
        self._last_number += 1
        number = self._last_number
        timer = self._loop.call_later(ANSWER_SECONDS, self._end, number, None)
        self._waiting[number] = _Waiting(peer, done, timer)
        self._send(peer, question(number))

    def answered(self, sender: str, answer: Answer) -> None:
        """An answer came; it is dropped where nobody waits for it from that peer."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None and waiting.peer == sender:
            self._end(answer.number, answer)

    def _end(self, number: int, answer: Answer | None) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.timer.cancel()
            if self._lifecycle.failure is None:
                waiting.done(answer)
