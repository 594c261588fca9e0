"""Counts the steps of a regular expression: a matcher that backtracks as ``re`` does.

``re`` does not say how much it tries. This matcher uses the same parsed pattern, in the same order.
Where ``re`` skips what cannot begin a match, it counts one step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

code = import_module("re._constants")  # typeshed has neither of the two
parser = import_module("re._parser")

Next: TypeAlias = Callable[[int], int | None]
"""Matches the rest from a position on. Returns where the match ends; ``None`` without one."""

Step: TypeAlias = Callable[["_Run", int, Next], int | None]

_EVERYWHERE = frozenset(("search", "findall", "finditer", "sub", "subn", "split"))


def regex_steps(pattern: re.Pattern[Any], method: str, args: Sequence[Any]) -> int:
    """The cost of ``pattern.method(*args)``."""
    text = args[1] if method in {"sub", "subn"} else args[0]
    bounds = [arg for arg in args[1:3] if isinstance(arg, int)] if args[0] is text else []
    start = bounds[0] if bounds else 0
    end = bounds[1] if len(bounds) > 1 else len(text)
    # Decoders of one language are given the same inputs.
    count = _steps if isinstance(text, bytes | str) else _steps.__wrapped__
    return count(pattern, method, text, start, end)


@lru_cache(maxsize=1 << 16)
def _steps(pattern: re.Pattern[Any], method: str, text: Any, start: int, end: int) -> int:
    run = _Run(text, end)
    if method in _EVERYWHERE:
        while start <= run.end:
            found = run.first(pattern, start)
            if found is None or method == "search":
                break
            start = max(found[1], found[0] + 1)
    else:
        run.match(pattern, start, whole=method == "fullmatch")
    return run.steps


def regex_end(pattern: re.Pattern[Any], text: str | bytes) -> int | None:
    """Where a match from the beginning ends, for a comparison with ``re``."""
    return _Run(text, len(text)).match(pattern, 0, whole=False)


class _Run:
    def __init__(self, text: Any, end: int) -> None:
        self.text = text
        self.end = end
        self.steps = 0

    def match(self, pattern: re.Pattern[Any], start: int, *, whole: bool) -> int | None:
        def at_end(position: int) -> int | None:
            return None if whole and position != self.end else position

        return _compiled(pattern.pattern, pattern.flags)(self, start, at_end)

    def first(self, pattern: re.Pattern[Any], start: int) -> tuple[int, int] | None:
        """The (start, end) of the first match from ``start`` on."""
        for begin in range(start, self.end + 1):
            self.steps += 1
            end = self.match(pattern, begin, whole=False)
            if end is not None:
                return begin, end
        return None

    def character(self, position: int) -> int:
        """The character at a position, as a number; -1 at the end."""
        self.steps += 1
        if position >= self.end:
            return -1
        found = self.text[position]
        return found if isinstance(found, int) else ord(found)


@lru_cache(maxsize=256)
def _compiled(pattern: Any, flags: int) -> Step:
    return _sequence(parser.parse(pattern, flags), flags)


def _same(position: int) -> int | None:
    return position


def _sequence(items: Any, flags: int) -> Step:
    steps = [_step(kind, value, flags) for kind, value in items]
    if len(steps) == 1:
        return steps[0]

    def sequence(run: _Run, position: int, then: Next, at: int = 0) -> int | None:
        if at == len(steps):
            return then(position)
        return steps[at](run, position, lambda end: sequence(run, end, then, at + 1))

    return sequence


def _step(kind: Any, value: Any, flags: int) -> Step:
    holds = _character(kind, value, flags)
    if holds is not None:
        return lambda run, position, then: (
            then(position + 1) if holds(run.character(position)) else None
        )
    if kind in {code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT}:
        low, high, items = value
        return _repeat(kind, low, high, items, flags)
    if kind is code.SUBPATTERN:
        _, add, remove, items = value
        return _sequence(items, (flags | add) & ~remove)
    if kind is code.ATOMIC_GROUP:
        return _atomic(_sequence(value, flags))
    if kind is code.BRANCH:
        return _branch([_sequence(items, flags) for items in value[1]])
    if kind in {code.ASSERT, code.ASSERT_NOT}:
        direction, items = value
        back = items.getwidth()[0] if direction < 0 else 0
        return _look(_sequence(items, flags), back, wanted=kind is code.ASSERT)
    if kind is code.AT:
        return _place(value)
    raise NotImplementedError(f"{kind} in a regular expression")


def _character(kind: Any, value: Any, flags: int) -> Callable[[int], bool] | None:
    """A test for one character; ``None`` if the item does not match exactly one."""
    if flags & re.IGNORECASE and kind in {code.LITERAL, code.NOT_LITERAL, code.IN}:
        raise NotImplementedError("a regular expression that ignores case")
    if kind is code.LITERAL:
        return lambda found: found == value
    if kind is code.NOT_LITERAL:
        return lambda found: found not in {-1, value}
    if kind is code.ANY:
        return lambda found: found != -1 and (bool(flags & re.DOTALL) or found != ord("\n"))
    if kind is code.IN:
        return _one_of(value)
    return None


def _one_of(items: Any) -> Callable[[int], bool]:
    negated = items[0][0] is code.NEGATE
    categories = {
        code.CATEGORY_DIGIT: r"\d",
        code.CATEGORY_SPACE: r"\s",
        code.CATEGORY_WORD: r"\w",
        code.CATEGORY_NOT_DIGIT: r"\D",
        code.CATEGORY_NOT_SPACE: r"\S",
        code.CATEGORY_NOT_WORD: r"\W",
    }

    def holds(found: int) -> bool:
        if found == -1:
            return False
        for kind, value in items[negated:]:
            if (
                (kind is code.LITERAL and found == value)
                or (kind is code.RANGE and value[0] <= found <= value[1])
                or (kind is code.CATEGORY and re.match(categories[value], chr(found)) is not None)
            ):
                return not negated
        return negated

    return holds


def _repeat(kind: Any, low: int, high: int, items: Any, flags: int) -> Step:
    body = _sequence(items, flags)
    single = _character(items[0][0], items[0][1], flags) if len(items) == 1 else None

    def greedy(run: _Run, position: int, then: Next, count: int = 0) -> int | None:
        if single:
            end = position
            while end - position < high and single(run.character(end)):
                end += 1
            for last in range(end, position + low - 1, -1):
                run.steps += 1
                found = then(last)
                if found is not None:
                    return found
            return None

        def again(end: int) -> int | None:
            if end == position and count >= low:
                return None
            return greedy(run, end, then, count + 1)

        if count < high:
            found = body(run, position, again)
            if found is not None:
                return found
        return then(position) if count >= low else None

    def lazy(run: _Run, position: int, then: Next) -> int | None:
        for count in range(int(high) + 1):
            if count >= low:
                run.steps += 1
                found = then(position)
                if found is not None:
                    return found
            end = body(run, position, _same)
            if end is None or end == position:
                return None
            position = end
        return None

    def possessive(run: _Run, position: int, then: Next) -> int | None:
        count = 0
        while count < high:
            end = body(run, position, _same)
            if end is None:
                break
            count += 1
            if end == position:
                break
            position = end
        return then(position) if count >= low else None

    return {code.MAX_REPEAT: greedy, code.MIN_REPEAT: lazy}.get(kind, possessive)


def _atomic(body: Step) -> Step:
    def atomic(run: _Run, position: int, then: Next) -> int | None:
        end = body(run, position, _same)
        return None if end is None else then(end)

    return atomic


def _branch(branches: Sequence[Step]) -> Step:
    def branch(run: _Run, position: int, then: Next) -> int | None:
        for one in branches:
            run.steps += 1
            found = one(run, position, then)
            if found is not None:
                return found
        return None

    return branch


def _look(body: Step, back: int, *, wanted: bool) -> Step:
    def look(run: _Run, position: int, then: Next) -> int | None:
        there = position >= back and body(run, position - back, _same) is not None
        return then(position) if there is wanted else None

    return look


def _place(value: Any) -> Step:
    def place(run: _Run, position: int, then: Next) -> int | None:
        run.steps += 1
        holds = {
            code.AT_BEGINNING: position == 0,
            code.AT_BEGINNING_STRING: position == 0,
            code.AT_END_STRING: position == run.end,
            code.AT_END: run.text[position : run.end] in {"", b"", "\n", b"\n"},
        }[value]
        return then(position) if holds else None

    return place
