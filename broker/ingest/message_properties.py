"""The properties that the broker reads before it stores a message, and those that it stores.

The properties are the string of :mod:`store.message.properties`: ``name 0x01 value 0x02 ...``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from broker.errors import IllegalKeysError, PropertiesTooLargeError
from broker.limits import PRODUCE
from store.message.record import PROPERTIES_BYTES_MAX

_WAIT = re.compile(rb"(?:(?<=\x02)|\A)WAIT\x01[^\x02]*(?:\x02|\Z)")
_DELAY = re.compile(rb"(?:\x02|\A)DELAY\x01(?!-|0*(?:\x02|\Z))")
_TIMER = re.compile(rb"(?:\x02|\A)TIMER_(?:DELIVER_MS|DELAY_SEC|DELAY_MS)\x01")
HALF = re.compile(rb"(?:\x02|\A)TRAN_MSG\x01true(?:\x02|\Z)")


class NeedsRoutingError(Exception):
    """The message is delivered later: it is scheduled, or belongs to a transaction.

    Raised when the properties of a new template are read. So plain messages pay nothing for
    scheduled messages.
    """


def storable_properties(properties: bytes) -> bytes:
    """The property bytes as they are stored: without ``WAIT``, as RocketMQ stores them.

    Raises as :func:`storable_in_batch`.
    """
    return storable_in_batch(checked_properties(properties))


def storable_in_batch(properties: bytes) -> bytes:
    """The same for a message of a batch, which keeps ``WAIT``: RocketMQ's ``SendMessageProcessor``
    removes it from single messages only.

    Raises :class:`NeedsRoutingError` if the message is delivered later, and as
    :func:`checked_properties`.
    """
    _check_size(properties)
    if is_delayed(properties) or (b"TRAN_MSG\x01" in properties and HALF.search(properties)):
        raise NeedsRoutingError
    return properties


def is_delayed(properties: bytes) -> bool:
    """Whether the message names a delay level or a time of delivery."""
    return bool(
        (b"DELAY\x01" in properties and _DELAY.search(properties))
        or (b"TIMER_DE" in properties and _TIMER.search(properties))
    )


def checked_properties(properties: bytes) -> bytes:
    """The properties of a single message without ``WAIT``. Raises
    :class:`~broker.errors.PropertiesTooLargeError` if they are too long."""
    _check_size(properties)
    if b"WAIT\x01" in properties:
        properties = _WAIT.sub(b"", properties)
    return properties


def _check_size(properties: bytes) -> None:
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLargeError(
            f"the properties have {len(properties)} bytes, at most {PROPERTIES_BYTES_MAX} fit"
        )


def check_keys(words: Sequence[bytes], size: int) -> None:
    """Raises :class:`~broker.errors.IllegalKeysError` for keys of a message
    that are too many or too long; ``size`` is that of all its properties.
    """
    if len(words) > PRODUCE.keys_max:
        raise IllegalKeysError(
            f"the message has {len(words)} keys, at most {PRODUCE.keys_max} are allowed"
        )
    if size <= PRODUCE.key_size_max:
        return
    longest = max(map(len, words), default=0)
    if longest > PRODUCE.key_size_max:
        raise IllegalKeysError(
            f"a key of the message has {longest} bytes, at most {PRODUCE.key_size_max} are allowed"
        )


def is_half_message(properties: bytes) -> bool:
    """Whether the message is the half message of a transaction."""
    return HALF.search(properties) is not None
