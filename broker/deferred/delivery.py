"""All that delivers waiting messages on a leader, and what the log must keep for it."""

from __future__ import annotations

import asyncio

from broker.deferred.levels import LevelDelivery, waiting_from
from broker.gather import Gatherer
from broker.machine import BrokerStateMachine
from broker.reader import MessageReader, rows
from dledger.statemachine import Leadership
from store.deferred import LEVEL_MAX, SCHEDULE_TOPIC


class Delivery:
    """Delivers while this node serves as leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        gatherer: Gatherer,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._machine = machine
        self._reader = reader
        self._gatherer = gatherer
        self._loop = loop
        self._term: int | None = None
        """In which this node serves."""
        self._levels: list[LevelDelivery] = []

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new term goes on with what is applied: nothing of the old one counts."""
        term = leadership.term if leadership.serving else None
        if term == self._term:
            return
        self.stop()
        self._term = term
        if term is None:
            return
        self._levels = [
            LevelDelivery(
                level,
                machine=self._machine,
                reader=self._reader,
                gatherer=self._gatherer,
                loop=self._loop,
            )
            for level in range(1, LEVEL_MAX + 1)
        ]
        for each in self._levels:
            each.arrived()

    def arrived(self, topic: str, queue_id: int) -> None:
        """Messages were added to a queue in which they wait."""
        if topic == SCHEDULE_TOPIC and queue_id < len(self._levels):
            self._levels[queue_id].arrived()

    def stop(self) -> None:
        """Delivers nothing more."""
        self._term = None
        for each in self._levels:
            each.stop()
        self._levels = []

    def kept_from(self) -> int | None:
        """The position of the first record that still waits, if one does."""
        positions = []
        for level in range(1, LEVEL_MAX + 1):
            queue = self._machine.queue(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                offset = waiting_from(self._machine.state, queue, level)
                positions += [position for position, _, _ in rows(queue.read(offset, 1))]
        return min(positions, default=None)
