"""Filter expressions in RocketMQ's SQL92, from text to a selector of messages.

The language is that of RocketMQ's ``SelectorParser``, with the additions of 5.x::

    condition  = and-part { OR and-part }
    and-part   = equality { AND equality }
    equality   = comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
    comparison = unary { (">" | ">=" | "<" | "<=") unary | [NOT] BETWEEN unary AND unary
                         | [NOT] IN "(" text { "," text } ")"
                         | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text }
    unary      = ("+" | "-" | NOT) unary | literal | property | "(" condition ")"

NOT binds tighter than "=": ``NOT a = 5`` asks whether the negation of ``a`` is 5. Words may be in
lower case. Comments are ``--`` to the end of the line and ``/* */``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from broker.filter.sql92_operations import (
    Operand,
    between,
    condition,
    conjunction,
    constant,
    disjunction,
    equal,
    is_null,
    negation,
    negative,
    not_between,
    one_of,
    ordered,
    property_named,
    search,
)
from broker.filter.sql92_values import NotComparableError
from broker.filter.subscription import ExpressionError, remembered
from broker.limits import BODY_LIMITS, CONSUME
from store.quoting import quoted, shortened

# Tokens do not backtrack (``++``). In the last line ``--`` is not a comment but two signs:
# searching the end of the line at each of them would take quadratic time.
_REST = r"""
      |(?P<float>[0-9]++(?:\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)
                |\.[0-9]++(?:[eE][+-]?[0-9]++)?)
      |(?P<integer>[1-9][0-9]*+[lL]?|0[0-9]*+)
      |(?P<text>'(?:''|[^'])*+')
      |(?P<word>[A-Za-z_$][A-Za-z0-9_$]*+)
      |(?P<sign><>|>=|<=|[=<>(),+-])"""
_TOKEN, _TOKEN_OF_LAST_LINE = (
    re.compile(rf"(?P<space>[ \t\r\n\f]++{comment}|/\*.*?\*/){_REST}", re.VERBOSE | re.DOTALL)
    for comment in (r"|--[^\r\n]*+(?:\r\n|\r|\n)", "")
)
_LITERALS: Mapping[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_SEARCHES = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_RESERVED = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "IS", *_LITERALS, *_SEARCHES))
_INT64_MAX = 2**63 - 1


class Selector:
    """Selects the messages that match an expression."""

    def __init__(self, whole: Operand) -> None:
        self._evaluate = whole.evaluate

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true for these properties: not false, unknown or without a
        meaning."""
        try:
            return self._evaluate(properties) is True
        except NotComparableError:
            return False


@remembered
def parse_selector(expression: str) -> Selector:
    """The selector of an expression. Raises :class:`~broker.filter.subscription.ExpressionError`
    with the place of the mistake."""
    return Selector(_Parser(expression).whole())


class _Token(NamedTuple):
    kind: str
    """The kind is a sign or a reserved word itself; otherwise integer, float, text, word or end."""
    text: str
    at: int


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._cut()
        self._next = 0
        self._depth = 0
        self._links = 0

    def whole(self) -> Operand:
        found = condition(self._condition())
        if self._token.kind != "end":
            raise self._unexpected()
        return found

    # --- tokens

    def _cut(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        last_line = max(map(self._expression.rfind, "\r\n")) + 1
        while at < len(self._expression):
            token = _TOKEN if at < last_line else _TOKEN_OF_LAST_LINE
            match = token.match(self._expression, at)
            if match is None:
                raise self._error(
                    at, f"{quoted(self._expression[at])} begins no known word or sign"
                )
            kind, text = match.lastgroup or "", match[0]
            if kind == "word" and text.upper() in _RESERVED:
                kind = text.upper()
            elif kind == "sign":
                kind = text
            if kind != "space":
                if len(tokens) == BODY_LIMITS.expression_tokens:
                    raise self._error(at, f"it has more than {len(tokens)} words and signs")
                tokens.append(_Token(kind, text, at))
            at = match.end()
        return [*tokens, _Token("end", "", at)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *kinds: str) -> _Token | None:
        """Takes the next token if it is of one of these kinds."""
        token = self._token
        if token.kind not in kinds:
            return None
        self._next += 1
        return token

    def _expect(self, kind: str) -> _Token:
        token = self._take(kind)
        if token is None:
            raise self._unexpected()
        return token

    def _unexpected(self) -> ExpressionError:
        token = self._token
        if token.kind == "end":
            return self._error(token.at, "it ends too early")
        return self._error(token.at, f"{shortened(token.text)} does not belong there")

    def _error(self, at: int, reason: str) -> ExpressionError:
        return ExpressionError(
            f"the expression {quoted(self._expression)}, character {at + 1}: {reason}"
        )

    # --- grammar

    def _link(self) -> None:
        self._links += 1
        if self._links > CONSUME.expression_links_max:
            raise self._error(
                self._token.at, f"more than {CONSUME.expression_links_max} operations in a row"
            )

    def _condition(self) -> Operand:
        left = self._and_part()
        while self._take("OR"):
            self._link()
            left = disjunction(left, self._and_part())
        return left

    def _and_part(self) -> Operand:
        left = self._equality()
        while self._take("AND"):
            self._link()
            left = conjunction(left, self._equality())
        return left

    def _equality(self) -> Operand:
        first = left = self._comparison()
        while taken := self._take("=", "<>", "IS"):
            if left is not first:
                self._link()
            if taken.kind == "IS":
                negated = self._take("NOT")
                self._expect("NULL")
                left = negation(is_null(left)) if negated else is_null(left)
            elif taken.kind == "=":
                left = equal(left, self._comparison())
            else:
                left = negation(equal(left, self._comparison()))
        return left

    def _comparison(self) -> Operand:
        left = self._unary()
        while taken := self._take(">", ">=", "<", "<=", "NOT", "BETWEEN", "IN", *_SEARCHES):
            negated = taken.kind == "NOT"
            if negated:
                taken = self._take("BETWEEN", "IN", *_SEARCHES)
                if taken is None:
                    raise self._unexpected()
            if taken.kind == "BETWEEN":
                low = self._unary()
                self._expect("AND")
                make = not_between if negated else between
                left = make(left, low, self._unary())
            elif taken.kind == "IN":
                left = one_of(left, self._texts(), negated=negated)
            elif taken.kind in _SEARCHES:
                left = search(left, taken.kind, self._text(), negated=negated)
            else:
                left = ordered(left, taken.kind, self._unary())
        return left

    def _texts(self) -> list[str]:
        self._expect("(")
        texts = [self._text()]
        while self._take(","):
            texts.append(self._text())
        self._expect(")")
        return texts

    def _text(self) -> str:
        return self._expect("text").text[1:-1].replace("''", "'")

    def _unary(self) -> Operand:
        self._depth += 1
        if self._depth > CONSUME.expression_depth_max:
            raise self._error(
                self._token.at, f"nested more than {CONSUME.expression_depth_max} deep"
            )
        try:
            if self._take("+"):
                return self._unary()
            if self._take("-"):
                return negative(self._unary())
            if self._take("NOT"):
                return negation(self._unary())
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> Operand:
        token = self._take("(", "text", "integer", "float", "word", *_LITERALS)
        if token is None:
            raise self._unexpected()
        match token.kind:
            case "(":
                inner = self._condition()
                self._expect(")")
                return inner
            case "word":
                return property_named(token.text)
            case "text":
                return constant(token.text[1:-1].replace("''", "'"), token.text)
            case "integer":
                return constant(self._integer(token), token.text)
            case "float":
                return constant(float(token.text), token.text)
            case literal:
                return constant(_LITERALS[literal], literal)

    def _integer(self, token: _Token) -> int:
        digits = token.text.rstrip("lL")
        if digits[0] == "0" and len(digits) > 1:  # for RocketMQ, a zero and another number
            raise self._error(token.at + 1, f"{digits[1]} does not belong there")
        if len(digits) > 19 or int(digits) > _INT64_MAX:
            raise self._error(token.at, f"{shortened(token.text)} is greater than {_INT64_MAX}")
        return int(digits)
