"""The checker of registers against known histories, and against trying every order."""

from __future__ import annotations

from itertools import permutations
from math import inf
from random import Random

import pytest

from simulator.linearizability.checker import Operation, check_register, check_registers
from simulator.linearizability.picture import picture
from tests.support.search_effort import sample


def write(client: str, value: int | None, called: float, ended: float = inf) -> Operation:
    return Operation(client, "r", True, value, called, ended)


def read(client: str, value: int | None, called: float, ended: float) -> Operation:
    return Operation(client, "r", False, value, called, ended)


def holds(*operations: Operation) -> bool:
    return check_register(operations).linearizable


def test_reads_may_see_an_overlapping_write_or_not() -> None:
    assert holds(write("a", 1, 0, 4), read("b", None, 1, 2), read("c", 1, 1, 3))
    assert holds(write("a", 1, 0, 4), read("b", 1, 1, 2))


def test_a_read_after_a_write_sees_it() -> None:
    assert not holds(write("a", 1, 0, 1), read("b", None, 2, 3))


def test_two_reads_do_not_see_an_overlapping_write_come_and_go() -> None:
    assert not holds(write("a", 1, 0, 9), read("b", 1, 1, 2), read("b", None, 3, 4))


def test_a_write_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    late = write("a", 1, 0)
    assert holds(late, read("b", None, 5, 6), read("b", 1, 7, 8))
    assert holds(late, read("b", None, 5, 6))
    assert not holds(late, read("b", 1, 5, 6), read("b", None, 7, 8))


def test_a_value_that_nobody_wrote_fits_nowhere() -> None:
    search = check_register([write("a", 1, 0, 1), read("b", 2, 2, 3), read("b", 1, 4, 5)])
    assert not search.linearizable
    assert search.first_misfit.value == 2


def test_writes_that_nobody_answered_or_read_leave_the_search_short() -> None:
    unread = [write("a", place, 0) for place in range(10, 40)]
    seen = [write("b", 1, 1, 2), write("b", 2, 3, 4), read("c", 1, 5, 6)]
    assert not check_register([*unread, *seen]).linearizable
    assert check_register([*unread, *seen[:2], read("c", 2, 5, 6)]).linearizable
    assert not check_register([*unread, *seen[:2], read("c", 2, 5, 6), seen[2]]).linearizable


def test_registers_are_independent() -> None:
    other = Operation("a", "s", True, 7, 0, 1)
    searches = check_registers([write("a", 1, 0, 1), other, read("b", 1, 2, 3)])
    assert [(each.register, each.linearizable) for each in searches] == [("r", True), ("s", True)]


def by_trying_all(operations: list[Operation]) -> bool:
    """Every order that respects time, and every choice of the unknown that never happened."""
    for order in permutations(operations):
        state: int | None = None
        ends = [order[later].ended_at for later in range(len(order))]
        if any(
            min(ends[place + 1 :], default=inf) < each.called_at for place, each in enumerate(order)
        ):
            continue
        for each in order:
            if each.is_write:
                state = each.value
            elif each.value != state:
                break
        else:
            return True
    return False


@pytest.mark.parametrize("seed", sample(range(300)))
def test_it_agrees_with_trying_every_order(seed: int) -> None:
    rng = Random(seed)
    operations = []
    for _ in range(rng.randint(2, 6)):
        called = rng.random() * 6
        ended = called + rng.random() * 3
        client = rng.choice("abc")
        if rng.random() < 0.5:
            unknown = rng.random() < 0.2
            operations.append(write(client, rng.randint(1, 3), called, inf if unknown else ended))
        else:
            operations.append(read(client, rng.choice((None, 1, 2, 3)), called, ended))
    assert check_register(operations).linearizable == by_trying_all(operations), f"seed {seed}"


def test_the_picture_names_what_fits_nowhere_and_loads_nothing() -> None:
    late = (write("c", 5, 1.5), read("d", 5, 6, 7))
    search = check_register([write("<a>", 1, 0, 1), read("b", None, 2, 3), *late])
    page = picture(search)
    assert "b reads None (2.000 to 3.000)" in page
    assert "&lt;a&gt;" in page
    assert page.count('class="misfit"') == 1
    assert 'class="write open"' in page
    assert "http" not in page
