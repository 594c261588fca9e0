"""Changes of RocketMQ 5's topic attributes: ``+name=value,-name``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.errors import RefusedError
from broker.topics_and_groups import MESSAGE_TYPE, RETENTION_MS
from store.quoting import quoted

ATTRIBUTES = (MESSAGE_TYPE, RETENTION_MS)
_DIGITS_MAX = 15
"""Format: some 30,000 years in milliseconds."""


def changed_attributes(text: str) -> Mapping[str, str | None]:
    """The attributes that a request names, with None for one to remove.

    Raises :class:`~broker.errors.RefusedError` for text of another form, and for other attributes.
    """
    changed: dict[str, str | None] = {}
    for each in filter(None, text.split(",")):
        name, equals, value = each[1:].partition("=")
        if name in ATTRIBUTES and each[0] == "+" and equals:
            changed[name] = value
        elif name in ATTRIBUTES and each[0] == "-" and not equals:
            changed[name] = None
        else:
            known = ", ".join(ATTRIBUTES)
            raise RefusedError(
                f"the attribute {quoted(each)} is neither +NAME=VALUE nor -NAME with one of the "
                f"names {known}"
            )
    return changed


def retention_in(attributes: Mapping[str, str | None]) -> int | None:
    """The requested retention in ms, 0 for none; None if ``attributes`` does not name it.

    Raises :class:`~broker.errors.RefusedError`.
    """
    if RETENTION_MS not in attributes:
        return None
    value = attributes[RETENTION_MS]
    if value is None:
        return 0
    if not re.fullmatch(f"[0-9]{{1,{_DIGITS_MAX}}}", value):
        raise RefusedError(f"{RETENTION_MS} is a number of milliseconds, not {quoted(value)}")
    return int(value)
