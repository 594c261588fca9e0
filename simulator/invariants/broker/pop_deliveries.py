"""POP: every message is acknowledged or visible again, never both, and never neither.

The committed log says who was given what and until when; the clients' answers say what was
promised. A message is received by one member of a group at a time. Once acknowledged it is never
received again. It is in the dead letters exactly if it was received as often as its group tries,
and not acknowledged. In FIFO order no message goes out before an earlier one of its message group
is done.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from broker.state.commands import (
    CommitOffset,
    Expire,
    PopAck,
    PopChange,
    PopReceive,
    PopWait,
    decode_commands,
)
from simulator.engine.violation import Violation
from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.batch_invariant import BatchInvariant, messages_of
from simulator.workload.history import number_of
from simulator.workload.pop_member import RETRIES_MAX, Receipt
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import MessageRecord

if TYPE_CHECKING:
    from simulator.hosts.host import Host

ATTEMPTS_MAX = RETRIES_MAX + 1
DEAD_PREFIX = "%DLQ%"
_PAIR = Struct(">qI")


class _Message(NamedTuple):
    number: int
    message_group: str
    position: int


@dataclass(slots=True)
class _Delivery:
    attempt: int
    visible_ms: int


@dataclass(slots=True)
class _Queue:
    """What became of the messages of a queue for one group."""

    next: int = 0
    out: dict[int, _Delivery] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    """By offset, when the delivery that was acknowledged would have become visible; -1 if it
    ended otherwise."""
    given: set[tuple[int, int, int]] = field(default_factory=set)
    """Offset, attempt and time of each delivery."""


class PopDeliveries(BatchInvariant):
    """Follows one topic, and the groups that receive it by POP; those in ``fifo`` in order."""

    def __init__(self, topic: str, groups: Collection[str], fifo: Collection[str]) -> None:
        self.dead_letters = 0
        self.received_again = 0
        self._topic = topic
        self._groups = groups
        self._fifo = fifo
        self._messages: dict[int, list[_Message]] = {}
        """By queue id; offsets have no gaps."""
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._asked: set[tuple[str, int, int]] = set()
        self._expired_position = 0
        self._term_times: dict[int, int] = {}
        """By term, the newest time of its commands."""

    # --- the log

    def committed_batch(self, _host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        dead = self._take_messages(entry, batch)
        for command in decode_commands(batch.commands):
            match command:
                case Expire(position):
                    self._expired_position = max(self._expired_position, position)
                case PopReceive() | PopWait() | PopAck() | PopChange() | CommitOffset():
                    if command.topic == self._topic and command.group in self._groups:
                        self._carry_out(command, entry.term, dead)
        if any(dead.values()):
            raise Violation(f"dead letters and deliveries at once: {dead}")

    def _take_messages(self, entry: Entry, batch: Batch) -> dict[str, list[int]]:
        """The numbers of the dead letters among them, by group."""
        dead: dict[str, list[int]] = {group: [] for group in self._groups}
        dead_topics = {DEAD_PREFIX + group: group for group in self._groups}
        for logged in messages_of(entry, batch, (self._topic, *dead_topics)):
            topic, queue_id, _offset = logged.place
            record = logged.record
            number = number_of(record.body)
            if topic in dead_topics:
                dead[dead_topics[topic]].append(number)
            else:
                message_group = record.property_map.get("__SHARDINGKEY", "")
                self._messages.setdefault(queue_id, []).append(
                    _Message(number, message_group, logged.position)
                )
        return dead

    def _carry_out(
        self,
        command: PopReceive | PopWait | PopAck | PopChange | CommitOffset,
        term: int,
        dead: dict[str, list[int]],
    ) -> None:
        queue_id = command.queue_id
        queue = self._queues.setdefault((command.group, queue_id), _Queue())
        match command:
            case PopReceive():
                self._check_time(term, command.timestamp_ms)
                self._receive(command, queue)
            case PopWait():
                self._advance(command.group, queue_id, queue, command.next_offset, _waits(command))
            case PopAck():
                for offset in _runs(command.runs):
                    self._end(command, queue, offset, dead[command.group])
            case PopChange():
                known = queue.out.get(command.offset)
                if known is None:
                    raise Violation(f"{command.group} gets more time for {command.offset} too late")
                known.visible_ms = command.visible_ms
            case CommitOffset():
                for offset in [each for each in queue.out if each < command.offset]:
                    self._expires(queue_id, offset)
                    del queue.out[offset]
                for offset in range(queue.next, command.offset):
                    self._expires(queue_id, offset)
                queue.next = max(queue.next, command.offset)

    def _receive(self, command: PopReceive, queue: _Queue) -> None:
        group, queue_id, now_ms = command.group, command.queue_id, command.timestamp_ms
        offsets = _runs(command.runs)
        self._advance(group, queue_id, queue, command.next_offset, offsets)
        for offset in offsets:
            event = f"{group} is given {queue_id}:{offset}"
            if offset in queue.done:
                raise Violation(f"{event}, which it has acknowledged")
            known = queue.out.setdefault(offset, _Delivery(0, 0))
            if known.visible_ms > now_ms:
                raise Violation(
                    f"{event} {known.visible_ms - now_ms} ms before it is visible again"
                )
            if known.attempt == ATTEMPTS_MAX:
                raise Violation(f"{event} once more than its group tries")
            if group in self._fifo:
                self._check_order(event, queue_id, queue, offset)
            known.attempt += 1
            known.visible_ms = command.visible_ms
            self.received_again += known.attempt > 1
            queue.given.add((offset, known.attempt, now_ms))

    def _advance(
        self, group: str, queue_id: int, queue: _Queue, next_offset: int, taken: Collection[int]
    ) -> None:
        """No message is passed over: there are no filters."""
        if not queue.given and not queue.out and queue.next == 0:
            queue.next = next_offset if not taken else min(*taken, next_offset)
            for offset in range(queue.next):
                self._expires(queue_id, offset)
        for offset in range(queue.next, next_offset):
            if offset not in taken:
                raise Violation(f"{group} passes {queue_id}:{offset} over")
            queue.out.setdefault(offset, _Delivery(0, 0))
        queue.next = max(queue.next, next_offset)

    def _check_order(self, event: str, queue_id: int, queue: _Queue, offset: int) -> None:
        messages = self._messages[queue_id]
        of = messages[offset].message_group
        for earlier in queue.out:
            if earlier < offset and messages[earlier].message_group == of:
                raise Violation(f"{event} before {earlier} of its message group is done")

    def _end(self, command: PopAck, queue: _Queue, offset: int, dead: list[int]) -> None:
        group, queue_id = command.group, command.queue_id
        known = queue.out.pop(offset, None)
        event = f"{queue_id}:{offset} of {group}"
        if known is None:
            raise Violation(f"{event} ends twice")
        number = self._messages[queue_id][offset].number
        if number in dead:
            dead.remove(number)
            self.dead_letters += 1
            queue.done[offset] = -1
            if known.attempt != ATTEMPTS_MAX:
                raise Violation(f"{event} is a dead letter after {known.attempt} attempts")
        elif (group, queue_id, offset) in self._asked:
            queue.done[offset] = known.visible_ms
        else:
            raise Violation(f"{event} ends, and nobody has acknowledged it")

    def _expires(self, queue_id: int, offset: int) -> None:
        if self._messages[queue_id][offset].position >= self._expired_position:
            raise Violation(f"{queue_id}:{offset} is passed over, and has not expired")

    def _check_time(self, term: int, now_ms: int) -> None:
        before_ms = max(
            (newest for earlier, newest in self._term_times.items() if earlier < term), default=0
        )
        if now_ms < before_ms:
            raise Violation(f"the clock of POP runs back by {before_ms - now_ms} ms")
        self._term_times[term] = max(self._term_times.get(term, 0), now_ms)

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if not isinstance(host, BrokerHost):
            return
        for (group, queue_id), queue in self._queues.items():
            found = host.state_machine.state.pop.queues.get((group, self._topic, queue_id))
            kept = {} if found is None else found.deliveries
            state = {at: (each.attempt, each.visible_ms) for at, each in kept.items()}
            expected = {at: (each.attempt, each.visible_ms) for at, each in queue.out.items()}
            if state != expected:
                raise Violation(
                    f"{host.name} has other deliveries of {group} in {queue_id}: {state} and not "
                    f"{expected}"
                )

    # --- the clients

    def was_given(self, member: str, receipt: Receipt, record: MessageRecord) -> None:
        """An answer had this message."""
        queue = self._queues.get((receipt.group, receipt.queue_id), _Queue())
        attempt = record.reconsume_times + 1
        event = f"{member} is given {receipt.queue_id}:{receipt.offset}"
        if (receipt.offset, attempt, receipt.pop_ms) not in queue.given:
            raise Violation(f"{event}, attempt {attempt}, and the log does not say so")
        number = self._messages[receipt.queue_id][receipt.offset].number
        if number_of(record.body) != number:
            raise Violation(f"{event}, which is another message")

    def asks(self, receipt: Receipt) -> None:
        """A member is about to acknowledge it."""
        self._asked.add((receipt.group, receipt.queue_id, receipt.offset))

    def was_acknowledged(self, member: str, receipt: Receipt) -> None:
        """The broker said so."""
        queue = self._queues.get((receipt.group, receipt.queue_id), _Queue())
        visible_ms = queue.done.get(receipt.offset)
        event = f"the ack of {receipt.queue_id}:{receipt.offset} by {member}"
        if visible_ms is None:
            raise Violation(f"{event} is answered, and is not in the log")
        if visible_ms != receipt.visible_ms:
            raise Violation(f"{event} counts, with a handle of another delivery")

    def is_done(self, group: str) -> bool:
        """Whether each message is acknowledged, a dead letter, or expired."""
        for queue_id, messages in self._messages.items():
            queue = self._queues.get((group, queue_id), _Queue())
            for offset, message in enumerate(messages):
                if message.position < self._expired_position:
                    continue
                if offset in queue.out or offset >= queue.next:
                    return False
        return True


def _runs(data: bytes) -> list[int]:
    return [
        each for first, count in _PAIR.iter_unpack(data) for each in range(first, first + count)
    ]


def _waits(command: PopWait) -> list[int]:
    return [offset for offset, _hash in _PAIR.iter_unpack(command.rows)]
