"""The properties of scheduled messages, which are RocketMQ's, and how to set them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from broker.errors import IllegalMessageError
from store.message.properties import NAME_END, PAIR_END
from store.message.record import PROPERTIES_BYTES_MAX
from store.message.scheduled_topics import TIMER_OUT_MS

DELAY = b"DELAY"
TIMER_DELIVER_MS = b"TIMER_DELIVER_MS"
TIMER_DELAY_SEC = b"TIMER_DELAY_SEC"
TIMER_DELAY_MS = b"TIMER_DELAY_MS"
TIMER_DEL_UNIQUE_KEY = b"TIMER_DEL_UNIQKEY"
TIMER_NAMES = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_OUT_MS)

REAL_TOPIC = b"REAL_TOPIC"
REAL_QUEUE_ID = b"REAL_QID"
RETRY_TOPIC = b"RETRY_TOPIC"
ORIGIN_MESSAGE_ID = b"ORIGIN_MESSAGE_ID"


def with_properties(encoded: bytes, changed: Mapping[bytes, bytes | None]) -> bytes:
    """The property string with ``changed`` set, or removed if the value is None.

    Raises :class:`~broker.errors.IllegalMessageError` if it becomes too long.
    """
    kept = _pairs_of(tuple(changed)).sub(b"", encoded)
    if kept and not kept.endswith(PAIR_END):
        kept += PAIR_END
    added = [
        name + NAME_END + value + PAIR_END for name, value in changed.items() if value is not None
    ]
    made = kept + b"".join(added)
    if len(made) > PROPERTIES_BYTES_MAX:
        raise IllegalMessageError(
            f"the properties have {len(made)} bytes with those for the real queue of the "
            f"message, at most {PROPERTIES_BYTES_MAX} fit"
        )
    return made


def with_properties_that_fit(encoded: bytes, changed: Mapping[bytes, bytes | None]) -> bytes:
    """As :func:`with_properties`, for properties that a message can do without: what would make the
    property string too long is left out."""
    for name, value in changed.items():
        for fitting in (value, None):
            with suppress(IllegalMessageError):
                encoded = with_properties(encoded, {name: fitting})
                break
    return encoded


@lru_cache(maxsize=64)
def _pairs_of(names: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Matches each whole pair with one of the names."""
    return re.compile(
        rb"(?:(?<=\x02)|\A)(?:" + b"|".join(map(re.escape, names)) + rb")\x01[^\x02]*(?:\x02|\Z)"
    )
