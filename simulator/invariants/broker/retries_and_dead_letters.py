"""Messages that could not be consumed come again, and in the end are dead letters.

Attempts are counted, up to the last one that is allowed (RocketMQ's section 10.3). Consumers say
what they sent back; the committed log says what became of it. Each request stores one copy at most,
and at least one if it was acknowledged. A copy goes out once, at its time and not early. It holds
what its producer sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.state.commands import Expire, decode_commands
from simulator.engine.violation import Violation
from simulator.invariants.broker.batch_invariant import BatchInvariant, messages_of
from simulator.invariants.broker.due_time import due_ms
from simulator.workload.history import Listener, Sent, number_of
from simulator.workload.push_messages import RETRY_LEVEL
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import MessageRecord

if TYPE_CHECKING:
    from simulator.hosts.host import Host

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
RETRY_PREFIX, DEAD_PREFIX = "%RETRY%", "%DLQ%"


@dataclass(slots=True)
class _Attempt:
    """The copies of a message for one attempt: positions and due times, and how many went out."""

    stored: list[tuple[int, int]] = field(default_factory=list)
    out: int = 0
    dead: int = 0

    @property
    def copies(self) -> int:
        return len(self.stored) + self.dead


class ReturnedMessages(BatchInvariant, Listener):
    """Follows what the members of one group send back."""

    def __init__(self, group: str, topic: str, retries_max: int) -> None:
        self.dead_letters = 0
        self._retry_topic, self._dead_topic = RETRY_PREFIX + group, DEAD_PREFIX + group
        self._topic = topic
        self._retries_max = retries_max
        self._sent: dict[int, Sent] = {}
        self._asked: Counter[tuple[int, int]] = Counter()
        self._told: Counter[tuple[int, int]] = Counter()
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._expired_position = 0

    # --- what clients say

    def sent(self, sent: Sent) -> None:
        """See :class:`~simulator.workload.history.Listener`."""
        self._sent[sent.number] = sent

    def sends_back(self, record: MessageRecord) -> None:
        """A consumer asks for another attempt."""
        self._asked[number_of(record.body), record.reconsume_times + 1] += 1

    def sent_back(self, record: MessageRecord) -> None:
        """The answer said that there will be one."""
        key = number_of(record.body), record.reconsume_times + 1
        self._told[key] += 1
        attempt = self._attempts.get(key)
        if attempt is None or attempt.copies < self._told[key]:
            raise Violation(
                f"message {key[0]} was sent back, which is acknowledged; nobody stored it for its "
                f"further attempt {key[1]}"
            )

    def is_gone(self, record: MessageRecord) -> bool:
        """Whether retention may have removed the record."""
        return record.position < self._expired_position

    # --- what is in the log

    def committed_batch(self, host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        topics = (SCHEDULE_TOPIC, self._retry_topic, self._dead_topic)
        for message in messages_of(entry, batch, topics):
            record = message.record
            topic, properties = message.place[0], record.property_map
            if topic == SCHEDULE_TOPIC:
                if properties.get("REAL_TOPIC") == self._retry_topic:
                    self._check(record, properties)
                    self._waits(record, message.position, message.tags_code)
            elif topic == self._retry_topic:
                self._goes_out(record)
            else:
                self._check(record, properties)
                self._dies(host, record)
        for command in decode_commands(batch.commands):
            if isinstance(command, Expire):
                self._expired_position = max(self._expired_position, command.position)

    def _waits(self, record: MessageRecord, position: int, row: int) -> None:
        number, times = number_of(record.body), record.reconsume_times
        if not 1 <= times <= self._retries_max:
            raise Violation(
                f"message {number} is to be tried again {times} times; "
                f"{self._retries_max} are allowed"
            )
        due = due_ms(record, RETRY_LEVEL, row)
        self._attempt(number, times).stored.append((position, due))

    def _dies(self, host: Host, record: MessageRecord) -> None:
        number, times = number_of(record.body), record.reconsume_times
        if times != self._retries_max + 1:
            raise Violation(
                f"message {number} becomes a dead letter as its attempt {times} would be next; "
                f"{self._retries_max} further ones are allowed"
            )
        self._attempt(number, times).dead += 1
        self.dead_letters += 1
        host.coverage_mark("dead letter")

    def _attempt(self, number: int, times: int) -> _Attempt:
        """For the copy that is about to be counted: somebody must have asked for it."""
        attempt = self._attempts.setdefault((number, times), _Attempt())
        asked = self._asked[number, times]
        if attempt.copies >= asked:
            raise Violation(
                f"message {number} is stored for its further attempt {times} for the "
                f"{attempt.copies + 1}. time; consumers asked for that {asked} times"
            )
        return attempt

    def _goes_out(self, record: MessageRecord) -> None:
        number, times = number_of(record.body), record.reconsume_times
        attempt = self._attempts.get((number, times))
        if attempt is None or attempt.out >= len(attempt.stored):
            raise Violation(f"message {number} goes out once too often for attempt {times}")
        due = sorted(due for _position, due in attempt.stored)[attempt.out]
        attempt.out += 1
        if record.store_timestamp < due:
            raise Violation(
                f"message {number} goes out for attempt {times} "
                f"{due - record.store_timestamp} ms early"
            )

    def _check(self, record: MessageRecord, properties: Mapping[str, str]) -> None:
        number = number_of(record.body)
        sent = self._sent.get(number)
        if sent is None or sent.content is None:
            raise Violation(f"message {number} comes back, which nobody sent")
        content = sent.content
        fields = {
            "body": (sent.body, record.body),
            "flag": (content.flag, record.flag),
            "born time": (content.born_ms, record.born_timestamp),
            "tags": (content.tags, properties.get("TAGS", "")),
            "keys": (content.keys, properties.get("KEYS", "")),
            "topic": (self._topic, properties.get("RETRY_TOPIC")),
        }
        for name, (expected, found) in fields.items():
            if expected != found:
                raise Violation(
                    f"message {number} comes back with the {name} {found!r}, not {expected!r}"
                )

    @property
    def waiting(self) -> list[tuple[int, int]]:
        """Waiting messages and attempts, without those that retention has removed."""
        return [
            key
            for key, attempt in self._attempts.items()
            if attempt.out < len(attempt.stored)
            and all(position >= self._expired_position for position, _ in attempt.stored)
        ]
