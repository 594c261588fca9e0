"""What a consumer cannot decode: no disk is an excuse for giving it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from broker.client import received_message
from simulator.faults.schedule import Action
from simulator.worlds.registry import ASKING, BROKERS, WAITING, Run
from store.errors import CorruptRecordError
from store.message.record import MessageRecord, decode_record
from store.message.record_places import find_records


def spoil(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[int], bool]) -> None:
    """Of the records that clients decode, counted from 1 on, these are damaged."""
    decoded = count(1)

    def decode(buffer: memoryview, start: int) -> MessageRecord:
        if is_bad(next(decoded)):
            raise CorruptRecordError("it was planted")
        return decode_record(buffer, start)

    monkeypatch.setattr(received_message, "decode_record", decode)


@pytest.mark.parametrize("world", [BROKERS, ASKING, WAITING])
def test_a_damaged_record_breaks_a_promise(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda number: number % 9 == 0)
    outcome = Run(3, world, seconds=4.0, schedule=[]).play()
    assert outcome.violation is not None
    assert "given a damaged record: it was planted" in outcome.violation


@pytest.mark.parametrize("world", [BROKERS, ASKING])
def test_an_answer_that_is_no_records_breaks_a_promise(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = count(1)

    def find(body: bytes) -> tuple[bytes, int]:
        return find_records(body[1:] if next(answers) == 9 else body)

    monkeypatch.setattr(received_message, "find_records", find)
    outcome = Run(3, world, seconds=4.0, schedule=[]).play()
    assert outcome.violation is not None
    assert "cannot read an answer: " in outcome.violation


def test_a_damaged_record_breaks_a_promise_also_where_a_disk_was_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(monkeypatch, lambda number: number == 9)
    schedule = [
        *(Action(0.0, "crash-client", (name,)) for name in ("c0", "c1")),
        Action(2.0, "flip-bit", ("n1", 0.5, 3)),
        Action(2.5, "start", ("n1",)),
        *(Action(3.0, "start-client", (name,)) for name in ("c0", "c1")),
    ]
    outcome = Run(4, BROKERS, seconds=4.0, schedule=schedule).play()
    assert outcome.marks["disk damaged at rest"] == 1
    assert outcome.violation is not None
    assert "given a damaged record: it was planted" in outcome.violation
