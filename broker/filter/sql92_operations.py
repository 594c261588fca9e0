"""The operations of filter expressions, in RocketMQ's three-valued logic.

An operation is made of its operands once, and then evaluated for each message. It evaluates each
operand at most once, and its text has a bounded length. So both cost an expression no more than its
length, however deep it is nested. This module refuses the same expressions as RocketMQ's compiler:
an order of text or booleans, a comparison with NULL, a BETWEEN with swapped bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from broker.filter.sql92_values import Value, compare, compare_ordered
from broker.filter.subscription import ExpressionError
from store.quoting import quoted

Properties: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Properties], Value]

TEXT_SIZE = 100
"""Characters of the text of an operation; of a longer one its beginning is enough."""


class Operand(NamedTuple):
    """A part of an expression. ``text`` names it in errors."""

    evaluate: Evaluate
    text: str
    is_boolean: bool = False
    is_constant: bool = False
    is_property: bool = False


def constant(value: Value, text: str) -> Operand:
    """A literal. TRUE, FALSE and NULL may also be conditions."""
    is_boolean = value is None or isinstance(value, bool)
    return Operand(lambda _: value, text, is_boolean=is_boolean, is_constant=True)


def property_named(name: str) -> Operand:
    """A property of the message; unknown if the message does not have it."""
    return Operand(lambda properties: properties.get(name), name, is_property=True)


def negative(operand: Operand) -> Operand:
    """The negative of a number; unknown for any other value."""

    def evaluate(properties: Properties) -> Value:
        value = operand.evaluate(properties)
        if value is None or isinstance(value, str | bool):
            return None
        return -value

    return Operand(evaluate, f"-{operand.text}"[:TEXT_SIZE])


def condition(operand: Operand) -> Operand:
    """The operand as a condition. A property is text, so it is never true."""
    if operand.is_boolean:
        return operand
    if operand.is_property:
        evaluate = operand.evaluate
        return _boolean(
            lambda properties: None if evaluate(properties) is None else False, operand.text
        )
    raise ExpressionError(f"{operand.text} is not a condition")


def negation(operand: Operand) -> Operand:
    evaluate = condition(operand).evaluate

    def negate(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _boolean(negate, f"NOT {operand.text}")


def conjunction(left: Operand, right: Operand) -> Operand:
    return _logic(left, right, decisive=False, word="AND")


def disjunction(left: Operand, right: Operand) -> Operand:
    return _logic(left, right, decisive=True, word="OR")


def _logic(left: Operand, right: Operand, *, decisive: bool, word: str) -> Operand:
    """AND or OR: a side with the value ``decisive`` decides."""
    first, second = condition(left).evaluate, condition(right).evaluate

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is decisive:
            return decisive
        other = second(properties)
        if other is decisive:
            return decisive
        return None if one is None or other is None else not decisive

    return _boolean(evaluate, f"({left.text} {word} {right.text})")


def equal(left: Operand, right: Operand) -> Operand:
    for operand in (left, right):
        if operand.is_constant and operand.evaluate({}) is None:
            raise ExpressionError("NULL cannot be compared; use IS NULL or IS NOT NULL")
    if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
        raise ExpressionError(f"{left.text} cannot be compared with {right.text}")
    return _equal(left, right)


def is_null(operand: Operand) -> Operand:
    evaluate = operand.evaluate
    return _boolean(lambda properties: evaluate(properties) is None, f"{operand.text} IS NULL")


def _equal(left: Operand, right: Operand) -> Operand:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        return False if other is None else compare(one, other) == 0

    return _boolean(evaluate, f"({left.text} = {right.text})")


def ordered(left: Operand, sign: str, right: Operand) -> Operand:
    """``sign`` is one of <, <=, > and >=."""
    for operand in (left, right):
        _check_orderable(operand)
    first, second = left.evaluate, right.evaluate
    holds = _SIGNS[sign]

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        return None if other is None else holds(compare_ordered(one, other))

    return _boolean(evaluate, f"({left.text} {sign} {right.text})")


_SIGNS: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _check_orderable(operand: Operand) -> None:
    number = not operand.is_boolean
    if operand.is_constant:
        number = type(operand.evaluate({})) in {int, float}
    if not number:
        raise ExpressionError(f"{operand.text} cannot be ordered; only numbers can")


def between(operand: Operand, low: Operand, high: Operand) -> Operand:
    found = _in_range(operand, low, high, negated=False)
    if low.is_constant and high.is_constant:
        first, last = low.evaluate({}), high.evaluate({})
        if first is not None and last is not None and compare(first, last) > 0:
            raise ExpressionError(f"BETWEEN {low.text} AND {high.text} is never true")
    return found


def not_between(operand: Operand, low: Operand, high: Operand) -> Operand:
    return _in_range(operand, low, high, negated=True)


def _in_range(operand: Operand, low: Operand, high: Operand, *, negated: bool) -> Operand:
    """``operand >= low AND operand <= high``, or the negation of both; but the operand, which may
    contain another range, is evaluated once."""
    for each in (operand, low, high):
        _check_orderable(each)
    value_of, first, last = operand.evaluate, low.evaluate, high.evaluate

    def evaluate(properties: Properties) -> Value:
        value = value_of(properties)
        if value is None:
            return None
        lowest = first(properties)
        if lowest is not None and compare_ordered(value, lowest) < 0:
            return negated
        highest = last(properties)
        if highest is not None and compare_ordered(value, highest) > 0:
            return negated
        return None if lowest is None or highest is None else not negated

    word = "NOT BETWEEN" if negated else "BETWEEN"
    return _boolean(evaluate, f"({operand.text} {word} {low.text} AND {high.text})")


def one_of(operand: Operand, texts: Sequence[str], *, negated: bool) -> Operand:
    """IN and NOT IN, for a property and texts."""
    evaluate = _property_of(operand, "IN")
    wanted = frozenset(texts)

    def is_one(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else (value in wanted) is not negated

    return _boolean(is_one, f"{operand.text} IN (...)")


_SEARCHES: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, text: text in value,
    "STARTSWITH": lambda value, text: value.startswith(text),
    "ENDSWITH": lambda value, text: value.endswith(text),
}


def search(operand: Operand, word: str, text: str, *, negated: bool) -> Operand:
    """CONTAINS, STARTSWITH and ENDSWITH of RocketMQ 5. For a missing property and for an empty text
    they are false, negated or not; they are never unknown."""
    evaluate = _property_of(operand, word)
    holds = _SEARCHES[word]

    def found(properties: Properties) -> Value:
        value = evaluate(properties)
        return isinstance(value, str) and bool(text) and holds(value, text) is not negated

    return _boolean(found, f"{operand.text} {word} {quoted(text)}")


def _property_of(operand: Operand, word: str) -> Evaluate:
    if not operand.is_property:
        raise ExpressionError(f"{word} needs a property, {operand.text} is none")
    return operand.evaluate


def _boolean(evaluate: Evaluate, text: str) -> Operand:
    return Operand(evaluate, text[:TEXT_SIZE], is_boolean=True)
