"""Whether a history of concurrent operations on registers could have happened one at a time.

The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory
of tried states ("Testing for Linearizability", 2017), as in porcupine. Take any operation that no
other must precede, try it next, and go back where that leads nowhere; a set of operations done
together with the state they lead to is tried once. Registers are independent of each other, so each
is searched alone.

An operation with an unknown outcome ends at infinity: it may take effect at any time after its
call. It may also come last, when nobody looks any more, so it may have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

DISPATCHES_MAX = 200_000
"""The limit for one register. A longer search ends as undecided."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A read (``written`` is None) or a write of one register; times in virtual seconds.

    ``value`` is what a read returned or a write wrote; None is a value too (deleted, never set).
    """

    client: str
    register: str
    is_write: bool
    value: int | None
    called_at: float
    ended_at: float = inf

    def __str__(self) -> str:
        what = "writes" if self.is_write else "reads"
        until = "?" if self.ended_at == inf else f"{self.ended_at:.3f}"
        return f"{self.client} {what} {self.value} ({self.called_at:.3f} to {until})"


@dataclass(frozen=True, slots=True)
class Search:
    """The result of the search over one register. ``order`` is the longest that was found."""

    register: str
    linearizable: bool
    decided: bool
    operations: Sequence[Operation]
    order: Sequence[int]

    @property
    def first_misfit(self) -> Operation:
        """Of what the longest order lacks, the operation that ended first."""
        done = set(self.order)
        left = [each for place, each in enumerate(self.operations) if place not in done]
        return min(left, key=lambda each: each.ended_at)


def check_registers(operations: Sequence[Operation]) -> list[Search]:
    """The searches over all registers, in the order of their names."""
    by_register: dict[str, list[Operation]] = {}
    for operation in operations:
        by_register.setdefault(operation.register, []).append(operation)
    return [check_register(by_register[name]) for name in sorted(by_register)]


class _Event:
    """A call or an end, in a list from which both of an operation are taken out and put back."""

    __slots__ = ("after", "before", "end", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.end: _Event | None = None  # of a call: the event that ends it
        self.before: _Event
        self.after: _Event | None = None

    def take_out(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def put_back(self) -> None:
        self.before.after = self
        if self.after is not None:
            self.after.before = self


def _events(operations: Sequence[Operation]) -> _Event:
    """The head of the list of all events, in the order of time; a call before an end.

    A write that was never answered, and whose value nobody has read, has none. It fits behind any
    order of the others, and nothing stands between it and the next write. Each of them would double
    the orders to be tried.
    """
    read = {operation.value for operation in operations if not operation.is_write}
    timed: list[tuple[float, int, int, _Event]] = []
    for place, operation in enumerate(operations):
        if operation.is_write and operation.ended_at == inf and operation.value not in read:
            continue
        call = _Event(place)
        call.end = _Event(place)
        timed.append((operation.called_at, 0, place, call))
        timed.append((operation.ended_at, 1, place, call.end))
    head = last = _Event(-1)
    for _, _, _, event in sorted(timed, key=lambda each: each[:3]):
        last.after, event.before = event, last
        last = event
    return head


def check_register(operations: Sequence[Operation]) -> Search:
    """Searches for an order of the operations of one register. Its first value is None."""
    head = _events(operations)
    register = operations[0].register
    done, state = 0, None
    path: list[tuple[_Event, int | None]] = []
    longest: list[int] = []
    tried: set[tuple[int, int | None]] = set()
    event, steps = head.after, 0
    while head.after is not None:
        steps += 1
        if steps > DISPATCHES_MAX:
            return Search(register, True, False, operations, longest)
        if event is not None and event.end is not None:  # a call: may it be next?
            operation = operations[event.place]
            after = operation.value if operation.is_write else state
            fits = operation.is_write or operation.value == state
            if fits and (done | 1 << event.place, after) not in tried:
                done |= 1 << event.place
                tried.add((done, after))
                path.append((event, state))
                state = after
                event.take_out()
                event.end.take_out()
                if len(path) > len(longest):
                    longest = [each.place for each, _ in path]
                event = head.after
            else:
                event = event.after
            continue
        # The end of an operation that is not done yet: something before it was wrong.
        if not path:
            return Search(register, False, True, operations, longest)
        event, state = path.pop()
        done &= ~(1 << event.place)
        assert event.end is not None  # noqa: S101 - only calls are on the path
        event.end.put_back()
        event.put_back()
        event = event.after
    return Search(register, True, True, operations, longest)
