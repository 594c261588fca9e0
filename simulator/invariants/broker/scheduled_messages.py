"""Scheduled messages are delivered exactly once, and not early; recalled ones never.

The committed log says what is delivered, and when it was due. The clients' answers say what was
promised. The leader's clock decides what is due: wrong clocks deliver at wrong times, but never
twice or not at all. Scheduled messages are not removed, except from a full disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.state.commands import Expire, Recall, decode_commands
from simulator.engine.violation import Violation
from simulator.invariants.broker.batch_invariant import BatchInvariant, messages_of
from simulator.invariants.broker.due_time import due_ms
from simulator.workload.history import Listener, Place, Sent, number_of
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import MessageRecord
from store.message.scheduled_topics import SCHEDULED_TOPICS, TIMER_TOPIC

if TYPE_CHECKING:
    from simulator.faults.schedule import Action
    from simulator.hosts.host import Host


FILL_DISK = "fill-disk"


@dataclass(slots=True)
class _Scheduled:
    """One message: positions and due times of its records that wait, and how many went out."""

    stored: list[tuple[int, int]] = field(default_factory=list)
    delivered: int = 0
    recalled: int = 0

    @property
    def is_over(self) -> bool:
        """Whether none of its records waits."""
        return self.delivered + self.recalled == len(self.stored)


class ScheduledMessages(BatchInvariant, Listener):
    """Follows the messages of one topic; all of them are scheduled."""

    def __init__(self, topic: str, coverage_mark: Callable[[str], None]) -> None:
        self._topic = topic
        self._coverage_mark = coverage_mark
        self._timed: dict[tuple[int, int], int] = {}
        """The number of each message on the timer wheel, by time and offset; recalls take some."""
        self._messages: dict[int, _Scheduled] = {}
        self._places: dict[Place, int] = {}
        self._sent: dict[int, Sent] = {}
        self._expired_position = 0
        self._disk_filled = False

    def acted(self, action: Action) -> None:
        """See :class:`Invariant`."""
        self._disk_filled |= action.name == FILL_DISK

    def committed_batch(self, _host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        for logged in messages_of(entry, batch, (self._topic, *SCHEDULED_TOPICS)):
            record = logged.record
            number = number_of(record.body)
            message = self._messages.setdefault(number, _Scheduled())
            if logged.place[0] != self._topic:
                due = due_ms(record, self._sent[number].delay_level, logged.tags_code)
                message.stored.append((logged.position, due))
                if logged.place[0] == TIMER_TOPIC:
                    self._timed[logged.tags_code, logged.place[2]] = number
                continue
            self._goes_out(number, message, record.store_timestamp)
            self._places[logged.place] = number
        for command in decode_commands(batch.commands):
            if isinstance(command, Expire):
                self._expires(command.position)
            elif isinstance(command, Recall):
                self._recalls(command)

    def _recalls(self, command: Recall) -> None:
        """Where it comes behind the delivery, or once more, it changes nothing."""
        number = self._timed.get((command.deliver_ms, command.offset))
        if number is None:
            return
        message = self._messages[number]
        if message.is_over:
            self._coverage_mark("message recalled too late, or again")
        else:
            del self._timed[command.deliver_ms, command.offset]
            message.recalled += 1
            self._coverage_mark("message recalled")

    def _expires(self, end: int) -> None:
        self._expired_position = max(self._expired_position, end)
        for number, message in self._messages.items() if not self._disk_filled else ():
            for position, _due_ms in message.stored:
                if position < end and not (message.delivered or message.recalled):
                    raise Violation(
                        f"message {number} is removed up to {end}, and waits at {position}"
                    )

    def _goes_out(self, number: int, message: _Scheduled, now_ms: int) -> None:
        if message.is_over:
            raise Violation(
                f"message {number} is delivered {message.delivered + 1} times and was stored "
                f"{len(message.stored)} times to wait, {message.recalled} of them recalled"
            )
        due = min(due for _position, due in message.stored)
        message.delivered += 1
        if now_ms < due:
            raise Violation(f"message {number} is delivered {due - now_ms} ms early")

    def sent(self, sent: Sent) -> None:
        """See :class:`Listener`."""
        self._sent[sent.number] = sent

    def stored(self, sent: Sent) -> None:
        """See :class:`Listener`."""
        if sent.number not in self._messages:
            raise Violation(f"message {sent.number} is acknowledged; nobody applied it")

    def recalled(self, sent: Sent) -> None:
        """See :class:`Listener`."""
        if not self._messages[sent.number].recalled:
            raise Violation(f"message {sent.number} is recalled, says the answer, and not the log")

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`Listener`."""
        number = number_of(record.body)
        if self._places.get(place) != number:
            raise Violation(f"{consumer} is given message {number} for {place}")

    @property
    def waiting(self) -> list[int]:
        """The numbers of waiting messages, without those that retention has removed."""
        return [
            number
            for number, message in self._messages.items()
            if not message.is_over
            and all(position >= self._expired_position for position, _ in message.stored)
        ]
