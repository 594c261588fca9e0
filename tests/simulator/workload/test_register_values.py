"""Offsets of the registers: each once, in any order, within the range of their queue."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from simulator.invariants.broker.linearizable_registers import NotLinearizable, check_linearizable
from simulator.linearizability.checker import Operation
from simulator.workload.register_values import OFFSET_REGISTERS, QUEUE_END, RegisterValues
from simulator.workload.registers import RegisterHistory


def test_an_offset_is_written_to_a_register_once_and_all_are_within_its_queue() -> None:
    offsets = RegisterValues(Random(3))
    written: dict[str, list[int]] = {}
    for _ in range(3 * (QUEUE_END + 1)):
        value = offsets.next_value(0)
        written.setdefault(offsets.group(0), []).append(value)
    assert len(written) == 3
    for values in written.values():
        assert sorted(values) == list(range(QUEUE_END + 1))
        assert sum(one > other for one, other in pairwise(values)) > 5
    assert all(offsets.group(place) == "registers-0" for place in range(1, OFFSET_REGISTERS))


def test_numbers_of_queues_go_up_and_down_and_none_comes_again() -> None:
    history = RegisterHistory(Random(1))
    numbers = [history.next_queues() for _ in range(4_000)]
    assert sorted(numbers) == list(range(1, 4_001))
    assert numbers != sorted(numbers)


def test_a_register_that_keeps_the_highest_is_found() -> None:
    history = RegisterHistory(Random(1))
    for number, (is_write, value) in enumerate(((True, 9), (True, 4), (False, 9))):
        operation = Operation("r0", "offset 0", is_write, value, number, number + 0.5)
        history.end(history.begin(operation), operation)
    with pytest.raises(NotLinearizable, match="offset 0 is not linearizable"):
        check_linearizable(history)
