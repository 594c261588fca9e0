"""Each kind of broken promise is found in a record that has it, and nothing where none is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.soak.clients import ORDERS, PAYMENTS, READERS
from tests.soak.record import Place, Record

PLACES: list[Place] = [(ORDERS, 0, offset) for offset in range(3)]
BODIES = [b"one 0 ", b"one 1 ", b"one 2 "]
PAID: Place = (PAYMENTS, 0, 0)


def good_record() -> tuple[Record, dict[Place, bytes]]:
    """Three messages of one lane and two transactions, all given to a group and read."""
    record = Record(lambda: 1.0)
    stored = {**dict(zip(PLACES, BODIES, strict=True)), PAID: b"payment 0 "}
    for place, body in zip(PLACES, BODIES, strict=True):
        record.acknowledge(record.send(ORDERS, body, "one"), place)
    for body, decision in ((b"payment 0 ", True), (b"payment 1 ", False)):
        record.send(PAYMENTS, body)
        record.begun.add(body)
        record.decisions[body] = decision
    for place, body in stored.items():
        record.deliver(READERS, "member", place, body)
        record.read("reader", place, body)
    for offset in (1, 2, 3):
        record.write_offset(offset)
        record.wrote_offset()
        record.read_offset(offset)
    record.write_offset(4)  # nobody knows how that ended
    record.read_offset(4)
    return record, stored


def ended(record: Record, stored: dict[Place, bytes]) -> list[str]:
    record.check_stored(stored)
    record.check_given(READERS, stored)
    return record.findings


def test_nothing_is_found_where_every_promise_is_kept() -> None:
    assert ended(*good_record()) == []


def lost(record: Record, stored: dict[Place, bytes]) -> None:
    del stored[PLACES[2]]


def altered(record: Record, stored: dict[Place, bytes]) -> None:
    record.send(ORDERS, b"one 3 ")
    stored[PLACES[1]] = b"one 3 "


def duplicated(record: Record, stored: dict[Place, bytes]) -> None:
    stored[ORDERS, 1, 0] = BODIES[0]
    record.deliver(READERS, "member", (ORDERS, 1, 0), BODIES[0])


def invented(record: Record, stored: dict[Place, bytes]) -> None:
    stored[ORDERS, 1, 0] = b"nobody 0 "
    record.deliver(READERS, "member", (ORDERS, 1, 0), b"nobody 0 ")


def skipped(record: Record, stored: dict[Place, bytes]) -> None:
    record.given[READERS].discard(PLACES[1])


def given_again(record: Record, _stored: dict[Place, bytes]) -> None:
    record.deliver(READERS, "member", PLACES[1], BODIES[1])


def read_another(record: Record, _stored: dict[Place, bytes]) -> None:
    record.read("another", PLACES[1], BODIES[2])


def sent_out_of_order(record: Record, stored: dict[Place, bytes]) -> None:
    later = (ORDERS, 0, 3)
    first, second = record.send(ORDERS, b"two 0 ", "two"), record.send(ORDERS, b"two 1 ", "two")
    record.acknowledge(second, (ORDERS, 0, 4))
    record.acknowledge(first, later)
    for place, body in ((later, b"two 0 "), ((ORDERS, 0, 4), b"two 1 ")):
        stored[place] = body
        record.deliver(READERS, "member", place, body)


def offset_set_back(record: Record, _stored: dict[Place, bytes]) -> None:
    record.read_offset(2)


def commit_lost(record: Record, stored: dict[Place, bytes]) -> None:
    del stored[PAID]
    del record.bodies[PAID]


def rollback_published(record: Record, stored: dict[Place, bytes]) -> None:
    stored[PAYMENTS, 0, 1] = b"payment 1 "
    record.deliver(READERS, "member", (PAYMENTS, 0, 1), b"payment 1 ")


@pytest.mark.parametrize(
    ("break_promise", "told"),
    [
        (lost, "'one 2 ' was at ('orders', 0, 2), and is gone"),
        (altered, "'one 1 ' was at ('orders', 0, 1), where 'one 3 ' is"),
        (duplicated, "'one 0 ' is stored twice"),
        (invented, "holds 'nobody 0 ', which nobody sent there"),
        (skipped, "'one 1 ' at ('orders', 0, 1) never came to a member of readers"),
        (given_again, "member is given ('orders', 0, 1) after offset 2"),
        (read_another, "another has 'one 2 ' at ('orders', 0, 1), where 'one 1 ' was"),
        (sent_out_of_order, "two sent 'two 0 ' to ('orders', 0, 3) after offset 4"),
        (offset_set_back, "an offset was set to 3, then perhaps to 4, and is 2"),
        (commit_lost, "transaction 'payment 0 ' was committed, and is not published"),
        (rollback_published, "transaction 'payment 1 ' was not committed, and is published"),
    ],
)
def test_a_broken_promise_is_found_once(
    break_promise: Callable[[Record, dict[Place, bytes]], None], told: str
) -> None:
    record, stored = good_record()
    break_promise(record, stored)
    [finding] = ended(record, stored)
    assert told in finding


def test_the_longest_silence_is_between_two_acknowledgements() -> None:
    times = [1.0, 1.5, 4.5, 4.75]
    record = Record(lambda: times[record.acknowledged - 1])
    for number in range(len(times)):
        record.acknowledge(record.send(ORDERS, b"one %d " % number), (ORDERS, 0, number))
    assert (record.silence.seconds, record.silence.since) == (3.0, 1.5)
