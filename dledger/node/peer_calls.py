"""What nodes do for one another beside the protocol: who deals with which message, and questions
to peers, each with one answer or none in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    HealthReport,
    RemovedNotice,
    ServiceMessage,
    SnapshotNeededNotice,
    StateReport,
)

if TYPE_CHECKING:
    from dledger.node.node import Node

Question: TypeAlias = FetchRequest | CheckpointRequest
Answer: TypeAlias = FetchResponse | CheckpointResponse

ANSWER_SECONDS = 5.0


class _Waiting(NamedTuple):
    peer: str
    done: Callable[[Answer | None], None]
    timer: asyncio.TimerHandle


class PeerCalls:
    """The questions of one node that wait for their answers."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
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
        self._node.send(peer, question(number))

    def received(self, sender: str, message: ServiceMessage) -> None:
        """Hands a message to the part of this node that deals with it."""
        node = self._node
        match message:
            case HealthReport():
                node.health.received(sender, message)
            case SnapshotNeededNotice():
                node.snapshot_receiver.noticed(sender, message)
            case RemovedNotice():
                node.removal.received(sender, message, self._loop.time())
            case StateReport():
                node.state_divergence.on_report(sender, message)
            case FetchRequest():
                node.snapshot_sender.fetch(sender, message)
            case CheckpointRequest():
                node.snapshot_sender.checkpoint(sender, message)
            case FetchResponse() | CheckpointResponse():
                self._answered(sender, message)

    def _answered(self, sender: str, answer: Answer) -> None:
        """An answer came; it is dropped where nobody waits for it from that peer."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None and waiting.peer == sender:
            self._end(answer.number, answer)

    def _end(self, number: int, answer: Answer | None) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.timer.cancel()
            if self._node.failure is None:
                waiting.done(answer)
