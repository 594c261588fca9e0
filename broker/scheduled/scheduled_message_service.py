"""All that delivers waiting messages on a leader, and what the log must keep for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.delivery.corrupt_rows import WrongRowError
from broker.delivery.message_reader import MessageReader, rows
from broker.group_commit.batcher import Gatherer
from broker.ingest.deduplication import Sender
from broker.scheduled.delay_level_dispatcher import LevelDelivery, waiting_from
from broker.scheduled.dispatcher import Surroundings
from broker.scheduled.in_flight_timers import InFlight
from broker.scheduled.timer_dispatcher import TimerDelivery, kept_for_timers
from broker.scheduled.timer_wheel import slot_of
from broker.state.commands import Timer
from broker.state.state_machine import BrokerStateMachine
from dledger.node.state_machine import Leadership
from store.message.scheduled_topics import LEVEL_MAX, SCHEDULE_TOPIC, TIMER_TOPIC

log = logging.getLogger(__name__)


class Delivery:
    """Delivers while this node serves as leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        gatherer: Gatherer,
        loop: asyncio.AbstractEventLoop,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._within = Surroundings(machine, reader, gatherer, loop, fail)
        self.in_flight = InFlight()
        """Timed messages on their way into the log."""
        self.in_flight.on_landed = self._landed
        self._term: int | None = None
        """In which this node serves."""
        self._levels: list[LevelDelivery] = []
        self._timers: TimerDelivery | None = None

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new term goes on with what is applied: nothing of the old one counts."""
        term = leadership.term if leadership.serving else None
        if term == self._term:
            return
        self.stop()
        self._term = term
        if term is None:
            return
        self._levels = [LevelDelivery(level, self._within) for level in range(1, LEVEL_MAX + 1)]
        self._timers = TimerDelivery(self._within, self.in_flight)
        for each in (*self._levels, self._timers):
            each.arrived()

    def arrived(self, topic: str, queue_id: int) -> None:
        """Messages were added to a queue in which they wait."""
        if topic == SCHEDULE_TOPIC and queue_id < len(self._levels):
            self._levels[queue_id].arrived()
        elif topic == TIMER_TOPIC:
            self._landed()

    def _landed(self) -> None:
        if self._timers is not None:
            self._timers.arrived()

    def now_ms(self) -> int:
        """What is due by now; also what this leader's clock, or its mark, says to be past."""
        return max(self._within.gatherer.now_ms(), self._within.machine.state.timer.deliver_ms)

    def watched(self, deliver_ms: int, now_ms: int, waiter: Sender) -> Sender:
        """Who is to wait for a message for the wheel instead of ``waiter``.

        ``now_ms`` is what :meth:`now_ms` said when it was found to be due later. Where no message
        waits, the mark moves on before this one: whoever leads next need not look through the time
        in which none did. Raises as :meth:`~broker.group_commit.batcher.Gatherer.add_command`.
        """
        mark = self._within.machine.state.timer
        if not (mark.waiting or self.in_flight) and slot_of(mark.deliver_ms) < slot_of(now_ms):
            self._within.gatherer.add_command(Timer(now_ms, -1, 0))
        return self.in_flight.watched(deliver_ms, waiter)

    def stop(self) -> None:
        """Delivers nothing more."""
        self._term = None
        for each in self._levels:
            each.stop()
        self._levels = []
        if self._timers is not None:
            self._timers.stop()
            self._timers = None

    def kept_from(self) -> int | None:
        """The position of the first record that still waits, if one does."""
        machine = self._within.machine
        try:
            timed = kept_for_timers(machine)
        except WrongRowError as wrong:
            # Nothing is given up before it is mended.
            log.warning("keeping the log: %s", self._within.reader.suspected(wrong))
            return 0
        positions = [] if timed is None else [timed]
        for level in range(1, LEVEL_MAX + 1):
            queue = machine.queue(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                offset = waiting_from(machine.state, queue, level)
                positions += [position for position, _, _ in rows(queue.read(offset, 1))]
        return min(positions, default=None)
