"""The checks over what clients were told: each says so when a promise is broken."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from broker.client.message import MessageQueue
from broker.state.commands import CommitOffset, encode_commands
from simulator.engine.violation import Violation
from simulator.hosts.host import Host
from simulator.invariants.broker.linearizable_registers import NotLinearizable, check_linearizable
from simulator.invariants.broker.message_order import Ordering
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.linearizability.checker import Operation
from simulator.workload.history import History, Sent
from simulator.workload.registers import RegisterHistory
from store.log.entry import Entry, EntryKind, build_entry
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import MessageRecord, decode_record, make_pending_message

QUEUE = MessageQueue("orders", "broker-a", 0)
NOBODY = cast("Host", None)
HOST = bytes(8)


def record_of(sent: Sent, offset: int) -> MessageRecord:
    """As a broker would give it that has it alone in an entry."""
    staged = make_pending_message("orders", sent.body, b"", born_timestamp=1, born_host=HOST)
    body = b"".join(encode_batch(0, 1, HOST, [QueueRun("orders", 0, offset, [staged])], b""))
    return decode_record(decode_batch(body).records)


class Environment:
    """A history, the checks that listen to it, and a log that the test writes."""

    def __init__(self) -> None:
        self.stored = StoredMessages([], ["orders"])
        self.skipped = NothingSkipped("readers")
        self.history = History(lambda _who, _what: None)
        self.history.listeners = [self.stored, Ordering(), self.skipped]
        self._entries = 0

    def commit(self, *sent: Sent, offset: int = 0, commands: bytes = b"") -> None:
        """The next entry holds these messages, from that offset on."""
        staged = [
            make_pending_message("orders", each.body, b"", born_timestamp=1, born_host=HOST)
            for each in sent
        ]
        runs = [QueueRun("orders", 0, offset, staged)] if staged else []
        body = encode_batch(0, 1, HOST, runs, commands)
        entry = build_entry(EntryKind.DATA, self._entries, 1, 0, 0, body)
        self._entries += 1
        self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        self.stored.applies(NOBODY, entry, b"")
        self.skipped.applies(NOBODY, entry, b"")

    def deliver(self, sent: Sent, offset: int, consumer: str = "c0.1") -> None:
        self.history.deliver(consumer, QUEUE, offset, record_of(sent, offset))


def test_an_offset_that_is_used_again_is_found() -> None:
    world = Environment()
    one, two = world.history.send("p", 5), world.history.send("p", 5)
    world.commit(one, offset=0)
    with pytest.raises(Violation, match="gives offsets from 0 on"):
        world.commit(two, offset=0)


def test_an_acknowledgement_of_what_nobody_applied_is_found() -> None:
    world = Environment()
    sent = world.history.send("p", 5)
    with pytest.raises(Violation, match="nobody applied it"):
        world.history.acknowledge(sent, QUEUE, 0)


def test_an_acknowledgement_that_names_the_place_of_another_message_is_found() -> None:
    world = Environment()
    one, two = world.history.send("p", 5), world.history.send("p", 5)
    world.commit(one, two)
    with pytest.raises(Violation, match="message 1 is there"):
        world.history.acknowledge(one, QUEUE, 1)


def test_a_delivery_of_what_is_not_committed_is_found() -> None:
    world = Environment()
    with pytest.raises(Violation, match="is not committed"):
        world.deliver(world.history.send("p", 5), 0)


def test_a_delivery_of_other_bytes_is_found() -> None:
    world = Environment()
    one, two = world.history.send("p", 5), world.history.send("p", 5)
    world.commit(one)
    with pytest.raises(Violation, match="another message"):
        world.deliver(two, 0)


def test_a_retry_that_is_stored_a_second_time_is_found() -> None:
    world = Environment()
    sent = world.history.send("p", 5)
    world.commit(sent)
    with pytest.raises(Violation, match="message 0 is stored twice, by entries 0 and 1"):
        world.commit(sent, offset=1)


def test_a_consumer_that_is_given_a_message_twice_is_found() -> None:
    world = Environment()
    one = world.history.send("p", 5)
    world.commit(one)
    world.deliver(one, 0)
    world.deliver(one, 0, consumer="c1.1")
    with pytest.raises(Violation, match="after offset 0"):
        world.deliver(one, 0)


def test_messages_of_a_patient_producer_that_are_stored_out_of_order_are_found() -> None:
    ordering = Ordering()
    later = Sent(2, "p", b"", "p.1", ("orders", 0, 3))
    ordering.stored(later)
    ordering.stored(Sent(3, "p", b"", "p.1", ("orders", 1, 0)))
    with pytest.raises(Violation, match="an earlier one at 3"):
        ordering.stored(Sent(4, "p", b"", "p.1", ("orders", 0, 2)))


def test_a_group_that_commits_what_was_delivered_to_nobody_is_found() -> None:
    world = Environment()
    one, two = world.history.send("p", 5), world.history.send("p", 5)
    world.commit(one, two)
    world.deliver(one, 0)
    world.commit(commands=encode_commands([CommitOffset("readers", "orders", 0, 1)]))
    with pytest.raises(Violation, match="commits 2 in orders/0, and 1 was delivered to nobody"):
        world.commit(commands=encode_commands([CommitOffset("readers", "orders", 0, 2)]))


def test_a_stale_read_of_a_register_is_found_and_drawn() -> None:
    history = RegisterHistory(Random(1))
    wrote = Operation("r0", "offset 0", True, 1, 0.0, 1.0)
    for operation in (wrote, Operation("r1", "offset 0", False, None, 2.0, 3.0)):
        history.end(history.begin(operation), operation)
    with pytest.raises(NotLinearizable, match="offset 0 is not linearizable") as found:
        check_linearizable(history)
    assert "<svg" in found.value.page


def test_a_write_whose_client_died_may_still_take_effect() -> None:
    history = RegisterHistory(Random(1))
    history.begin(Operation("r0", "offset 0", True, 1, 0.0))
    history.client_ended("r0")
    read = Operation("r1", "offset 0", False, 1, 5.0, 6.0)
    history.end(history.begin(read), read)
    assert check_linearizable(history) == 0
