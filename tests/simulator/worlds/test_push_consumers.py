"""Consumers like RocketMQ's Java client, and the checks of what they are given and given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from broker.client.message import MessageQueue
from simulator.engine.violation import Violation
from simulator.faults.injector import FaultPlan
from simulator.hosts.host import Host
from simulator.invariants.broker.queue_locks import OneLockOwner
from simulator.invariants.broker.redelivery_after_reset import RedeliveredAfterReset
from simulator.invariants.broker.retries_and_dead_letters import ReturnedMessages
from simulator.invariants.broker.tag_filter import OnlyTagged
from simulator.workload.history import History, Sent
from simulator.workload.java_requests import share_of
from simulator.workload.push_listener import LockRequest
from simulator.workload.push_messages import tag_of, task_content
from simulator.worlds.registry import PUSHING, Run
from store.io.filesystem import Bytes
from store.log.entry import EntryKind, build_entry
from store.message.batch import QueueRun as LogRun
from store.message.batch import decode_batch, encode_batch
from store.message.properties import encode_properties
from store.message.record import MessageRecord, decode_record, make_pending_message

NOBODY = cast("Host", None)
HOST = bytes(8)
QUEUE = MessageQueue("tasks", "broker-a", 0)


@pytest.mark.minutes
def test_consumers_fail_are_struck_and_moved_and_every_promise_is_kept() -> None:
    """Repeat it with ``Run(2, world=PUSHING, seconds=8.0, plan=plan).play(print)``."""
    plan = FaultPlan.of(("crash", "client crash", "partition"))
    outcome = Run(2, world=PUSHING, seconds=8.0, plan=plan).play()
    assert outcome.violation is None
    for mark in ("dead letter", "message sent back", "group moved back was given all again"):
        assert outcome.marks[mark]


def test_queues_are_shared_out_as_java_does() -> None:
    queues = [MessageQueue("t", "b", place) for place in range(5)]
    shares = [share_of(queues, ["b", "a", "c"], member) for member in "abc"]
    assert shares == [queues[:2], queues[2:4], queues[4:]]
    assert share_of(queues[:1], ["b", "a"], "b") == []
    assert share_of(queues, ["a"], "stranger") == []


DUE_MS = 2_000
"""A second after it is sent back, as the clients ask for."""


class Returning:
    """What was sent back, and a log that the test writes."""

    def __init__(self, retries_max: int = 2) -> None:
        self.check = ReturnedMessages("workers", "tasks", retries_max)
        self._entries = self.position = 0
        history = History(lambda _who, _what: None)
        history.listeners = [self.check]
        self.sent = history.send("t0", 3)
        self.sent.content = task_content(self.sent.number, 1)

    def record(self, attempts: int, topic: str = "tasks", **changed: str) -> MessageRecord:
        """The message, as it is given after so many attempts."""
        return decode_record(decode_batch(b"".join(self._body(topic, attempts, changed))).records)

    def store(self, topic: str, attempts: int, **changed: str) -> None:
        """The next entry holds a copy of it."""
        body = self._body(topic, attempts, changed)
        entry = build_entry(EntryKind.DATA, self._entries, 1, 0, 0, body)
        self._entries += 1
        self.check.applies(cast("Host", self), entry, b"")

    def _body(self, topic: str, attempts: int, changed: dict[str, str]) -> Sequence[Bytes]:
        content = self.sent.content
        assert content is not None
        properties = {
            "TAGS": content.tags,
            "KEYS": content.keys,
            "RETRY_TOPIC": "tasks",
            "REAL_TOPIC": "%RETRY%workers",
        }
        staged = make_pending_message(
            topic,
            self.sent.body,
            encode_properties(properties | changed),
            flag=content.flag,
            born_timestamp=content.born_ms,
            born_host=HOST,
            reconsume_times=attempts,
        )
        staged = staged._replace(tags_code=DUE_MS)
        stored_ms = DUE_MS if topic.startswith("%RETRY%") else DUE_MS - 1_000
        return encode_batch(self.position, stored_ms, HOST, [LogRun(topic, 0, 0, [staged])], b"")

    def coverage_mark(self, _what: str) -> None:
        """As a host does."""


def test_attempts_that_are_asked_for_one_by_one_and_end_in_a_dead_letter_are_right() -> None:
    world = Returning()
    for attempts in (1, 2):
        world.check.sends_back(world.record(attempts - 1))
        world.store("SCHEDULE_TOPIC_XXXX", attempts)
        world.check.sent_back(world.record(attempts - 1))
        assert world.check.waiting == [(0, attempts)]
        world.store("%RETRY%workers", attempts)
        assert not world.check.waiting
    world.check.sends_back(world.record(2))
    world.store("%DLQ%workers", 3)
    world.check.sent_back(world.record(2))
    assert world.check.dead_letters == 1


def test_a_copy_that_nobody_asked_for_is_found() -> None:
    world = Returning()
    world.check.sends_back(world.record(0))
    world.store("SCHEDULE_TOPIC_XXXX", 1)
    with pytest.raises(Violation, match=r"for the 2\. time; consumers asked for that 1 times"):
        world.store("SCHEDULE_TOPIC_XXXX", 1)


@pytest.mark.parametrize(
    ("topic", "attempts", "says"),
    [
        ("SCHEDULE_TOPIC_XXXX", 0, "is to be tried again 0 times"),
        ("SCHEDULE_TOPIC_XXXX", 3, "is to be tried again 3 times"),
        ("%DLQ%workers", 2, "as its attempt 2 would be next"),
        ("%RETRY%workers", 1, "goes out once too often"),
    ],
)
def test_attempts_that_are_counted_wrongly_are_found(topic: str, attempts: int, says: str) -> None:
    world = Returning()
    world.check.sends_back(world.record(attempts))
    with pytest.raises(Violation, match=says):
        world.store(topic, attempts)


def test_a_copy_that_is_lost_after_its_acknowledgement_is_found() -> None:
    world = Returning()
    world.check.sends_back(world.record(0))
    with pytest.raises(Violation, match="nobody stored it"):
        world.check.sent_back(world.record(0))


@pytest.mark.parametrize("changed", [{"TAGS": "other"}, {"RETRY_TOPIC": "bills"}])
def test_a_copy_that_differs_from_what_was_sent_is_found(changed: dict[str, str]) -> None:
    world = Returning()
    world.check.sends_back(world.record(0))
    with pytest.raises(Violation, match="comes back with the"):
        world.store("SCHEDULE_TOPIC_XXXX", 1, **changed)


class Owners:
    """A leader of term 3, and clients that lock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.check = OneLockOwner(lambda: self.now)
        self.lead("a:1", 3)

    def lead(self, address: str, term: int) -> None:
        """It leads in that term."""
        self.check._leads[address] = term

    def lock(self, consumer: str, address: str = "a:1") -> LockRequest | None:
        """One second each."""
        asked = self.check.asks(consumer, QUEUE, address)
        self.now += 1.0
        return self.check.locked(consumer, QUEUE, asked)


def test_a_lock_that_two_clients_hold_is_found() -> None:
    world = Owners()
    assert world.lock("o0.1") is not None
    assert world.lock("o0.1") is not None
    world.now += 1.0
    with pytest.raises(Violation, match="o1 is granted tasks/0 in term 3, and o0 holds it"):
        world.lock("o1.1")


def test_a_lock_that_was_given_up_that_has_run_out_or_is_another_leaders_is_another_matter() -> (
    None
):
    world = Owners()
    world.lock("o0.1")
    world.check.unlocks("o0.1", QUEUE)
    world.now += 1.0
    assert world.lock("o1.1") is not None
    world.now += 60.0
    assert world.lock("o0.2") is not None
    world.lead("b:1", 4)
    assert world.lock("o1.1", "b:1") is not None
    assert world.lock("o0.2", "c:1") is None, "nobody knows that it leads"


def test_two_owners_at_once_and_messages_out_of_order_are_found() -> None:
    world = Owners()
    lock = world.lock("o0.1")
    world.check.begins("o0.1", QUEUE, 4, lock)
    with pytest.raises(Violation, match=r"o1\.1 and o0\.1 consume tasks/0 at once"):
        world.check.begins("o1.1", QUEUE, 4, lock)
    world.check.ends("o0.1", QUEUE)
    world.check.begins("o0.1", QUEUE, 4, lock)
    world.check.ends("o0.1", QUEUE)
    with pytest.raises(Violation, match=r"o0\.1 consumes 3 of tasks/0 after 4"):
        world.check.begins("o0.1", QUEUE, 3, lock)
    world.check.takes("o0.1", QUEUE)
    world.check.begins("o0.1", QUEUE, 0, lock)
    world.check.client_ended("o0")
    world.check.takes("o1.1", QUEUE)
    world.check.begins("o1.1", QUEUE, 0, lock)


def test_a_process_that_dies_leaves_its_locks_until_they_expire() -> None:
    world = Owners()
    other = MessageQueue("tasks", "broker-a", 1)
    world.lock("o0.1")
    assert not world.check.may_be_left_locked(QUEUE), "its owner lives"
    world.check.client_ended("o1")
    assert not world.check.may_be_left_locked(QUEUE), "another one has died"
    world.check.client_ended("o0")
    assert world.check.may_be_left_locked(QUEUE)
    assert not world.check.may_be_left_locked(other)
    world.now += 60.0
    assert world.check.may_be_left_locked(QUEUE), "a clock may be slow"
    world.now += 5.0
    assert not world.check.may_be_left_locked(QUEUE)


def test_the_next_process_takes_over_the_locks_that_it_asks_for() -> None:
    world = Owners()
    world.lock("o0.1")
    world.check.client_ended("o0")
    world.lock("o0.2")
    assert not world.check.may_be_left_locked(QUEUE)


def of(numbers: Sequence[int]) -> list[MessageRecord]:
    """Records with these numbers."""
    found = []
    for number in numbers:
        world = Returning()
        world.sent = Sent(number, "t0", number.to_bytes(8, "big"), "", content=task_content(0, 1))
        found.append(world.record(0))
    return found


def test_a_broker_that_gives_what_is_filtered_is_found() -> None:
    check = OnlyTagged(("Aa", "red"), tag_of)
    same_hash, other = of([1, 3])
    check.given("j0", ("tasks", 0, 1), same_hash)
    with pytest.raises(Violation, match="with the tag '', which it filters"):
        check.given("j0", ("tasks", 0, 3), other)


def test_what_a_group_is_not_given_again_is_known() -> None:
    check = RedeliveredAfterReset(lambda place: place[2] != 1)
    (record,) = of([0])
    check.begin({("tasks", 0): 4})
    assert not check.is_complete({("tasks", 0): 0})
    check.delivered("j0", ("tasks", 0, 0), record)
    check.delivered("j0", ("tasks", 0, 3), record)
    assert not check.is_complete({("tasks", 0): 2})
    assert check.is_complete({("tasks", 0): 3})
