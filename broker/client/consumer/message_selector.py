"""A consumer's filter by properties."""

from __future__ import annotations

from dataclasses import dataclass

from broker.filter.sql92_parser import parse_selector
from broker.filter.subscription import ALL, SQL_TYPE, Subscription, tag_codes


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over the properties of messages, which the broker evaluates::

        Consumer(name_servers, "billing", {"orders": Sql("amount > 100 AND TAGS IN ('paid')")})

    Raises :class:`~broker.filter.subscription.ExpressionError` with the place of a mistake.
    """

    expression: str

    def __post_init__(self) -> None:
        parse_selector(self.expression)


def subscription(topic: str, wanted: str | Sql, version: int) -> Subscription:
    """``wanted``: a tag expression, empty for all messages, or an SQL92 selector.

    Raises :class:`~broker.filter.subscription.ExpressionError`, as :class:`Sql` does.
    """
    if isinstance(wanted, Sql):
        return Subscription(topic, wanted.expression, version, SQL_TYPE)
    tag_codes(wanted)  # every heartbeat needs them
    return Subscription(topic, wanted or ALL, version)
