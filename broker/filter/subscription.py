"""The subscription of a group to a topic: the tag expression and the tags codes that match it.

The broker filters by the 32-bit hash of a tag, as in a ConsumeQueue row. Messages with a colliding
hash reach clients of remoting, which compare the text; those of gRPC do not, so the broker does it
for them. The codes are computed from the expression, because
C++ clients send ``codeSet`` [0, 0] with a correct expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeVar

from broker.errors import RefusedError
from broker.limits import BODY_LIMITS
from store.message.tags_code import tags_code
from store.quoting import quoted
from store.text_numbers import whole_number

T = TypeVar("T")

ALL = "*"
TAG_TYPE = "TAG"
SQL_TYPE = "SQL92"


class ExpressionError(RefusedError):
    """An invalid subscription expression."""


def remembered(make: Callable[[str], T]) -> Callable[[str], T]:
    """Caches ``make`` for recent expressions.

    The result raises :class:`ExpressionError` for an expression that is too long.
    """
    usual, long = lru_cache(maxsize=1024)(make), lru_cache(maxsize=16)(make)

    @wraps(make)
    def made(expression: str) -> T:
        if len(expression) <= BODY_LIMITS.expression_size_usual:
            return usual(expression)
        if len(expression) <= BODY_LIMITS.expression_size:
            return long(expression)
        raise ExpressionError(
            f"the expression {quoted(expression)} is longer than the "
            f"{BODY_LIMITS.expression_size} characters that are allowed"
        )

    return made


@remembered
def tag_names(expression: str) -> frozenset[str] | None:
    """The tags that ``A || B`` names; None (all match) for ``*`` and for an empty expression.

    Raises :class:`ExpressionError`.
    """
    if expression in {"", ALL}:
        return None
    tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
    if not tags:
        raise ExpressionError(f"the subscription {quoted(expression)} names no tag")
    return tags


@remembered
def tag_codes(expression: str) -> frozenset[int] | None:
    """The codes of :func:`tag_names`. Raises :class:`ExpressionError`."""
    tags = tag_names(expression)
    return None if tags is None else frozenset(map(tags_code, tags))


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a group to one topic, from its newest heartbeat."""

    topic: str
    expression: str
    version: int
    expression_type: str = TAG_TYPE

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Subscription:
        """From an element of ``subscriptionDataSet``. Raises ``ValueError``.

        Java sends the version as a number, C++ as text.
        """
        topic, expression = fields.get("topic"), fields.get("subString")
        version, expression_type = fields.get("subVersion", 0), fields.get("expressionType")
        if type(topic) is not str or not topic:
            raise ValueError(f"a subscription has no topic: {quoted(topic)}")
        if expression is not None and type(expression) is not str:
            raise ValueError(
                f"the subscription of {quoted(topic)} is not text: {quoted(expression)}"
            )
        if expression is not None and len(expression) > BODY_LIMITS.expression_size:
            raise ValueError(
                f"the subscription of {quoted(topic)} has {len(expression)} characters, "
                f"at most {BODY_LIMITS.expression_size} are allowed"
            )
        try:
            number = whole_number(version or "0") if type(version) is str else version
        except ValueError:
            number = None
        if type(number) is not int:
            raise ValueError(
                f"the subscription of {quoted(topic)} has the version {quoted(version)}"
            )
        kind = expression_type if type(expression_type) is str and expression_type else TAG_TYPE
        return cls(topic, expression or ALL, number, kind)

    def as_json(self) -> dict[str, object]:
        codes = self._codes()
        tags = [] if codes is None else [tag.strip() for tag in self.expression.split("||")]
        return {
            "classFilterMode": False,
            "codeSet": [] if codes is None else sorted(codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": tags,
            "topic": self.topic,
        }

    def _codes(self) -> frozenset[int] | None:
        return tag_codes(self.expression) if self.expression_type == TAG_TYPE else None
