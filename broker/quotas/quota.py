"""A quota, and its text as a setting.

A quota is a setting of the broker group (:mod:`broker.config.dynamic_settings`). So all nodes have
the same quotas, and they need no command of their own::

    quota.topic.clicks = produceBytes=1048576,consumeMessages=500
    quota.client.*     = produceMessages=100

The second is for each client without its own quota.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dledger.errors import BusyError
from store.quoting import quoted

PREFIX = "quota."
ACCOUNT, TOPIC, CLIENT = "account", "topic", "client"
ENTITY_TYPES = (ACCOUNT, TOPIC, CLIENT)
EACH = "*"
"""Instead of a name: each entity without its own quota."""

NAME_SIZE_MAX = 255
"""Format: RocketMQ's longest name of a group."""

RATE_MAX = 1 << 50
"""Format: the largest rate."""

_NAME = re.compile(r"[^\s=]+")
_RATES = {
    "produceMessages": "produce_messages",
    "produceBytes": "produce_bytes",
    "consumeMessages": "consume_messages",
    "consumeBytes": "consume_bytes",
}


class QuotaError(ValueError):
    """An invalid quota; the text names it and the reason."""


class OverQuotaError(BusyError):
    """The sender is too far beyond a quota, or too many held sends wait. Nothing was stored."""

    def __init__(self, waiting: int, limit: int, description: str, retry_seconds: int) -> None:
        """``retry_seconds``: after which another try may succeed."""
        super().__init__(waiting, limit, description)
        self.retry_seconds = retry_seconds


class Entity(NamedTuple):
    """An account, a topic or a client with a quota."""

    type: str
    """One of :data:`ENTITY_TYPES`."""
    name: str

    @property
    def setting(self) -> str:
        """The name of its setting."""
        return f"{PREFIX}{self.type}.{self.name}"


class Quota(NamedTuple):
    """Rates per second; 0: no limit. Bytes are those of sent bodies, and of delivered records."""

    produce_messages: int = 0
    produce_bytes: int = 0
    consume_messages: int = 0
    consume_bytes: int = 0

    def __str__(self) -> str:
        rates = zip(_RATES, self, strict=True)
        return ",".join(f"{name}={rate}" for name, rate in rates if rate)


def parse_entity(setting: str) -> Entity:
    """The entity of a setting that begins with :data:`PREFIX`. Raises :class:`QuotaError`."""
    type_, _, name = setting.removeprefix(PREFIX).partition(".")
    if type_ not in ENTITY_TYPES or not _NAME.fullmatch(name) or len(name) > NAME_SIZE_MAX:
        raise QuotaError(
            f"{quoted(setting)} is not {PREFIX}TYPE.NAME, where TYPE is one of "
            f"{', '.join(ENTITY_TYPES)} and NAME, of at most {NAME_SIZE_MAX} characters, has no "
            "white space and no ="
        )
    return Entity(type_, name)


def parse_quota(text: str) -> Quota:
    """The reverse of ``str``; an empty text has no limits. Raises :class:`QuotaError`."""
    rates: dict[str, int] = {}
    for each in filter(None, map(str.strip, text.split(","))):
        name, _, value = each.partition("=")
        if name not in _RATES:
            raise QuotaError(f"{quoted(each)} is not RATE=NUMBER with one of {', '.join(_RATES)}")
        if not re.fullmatch("[0-9]{1,16}", value) or not 0 <= int(value) <= RATE_MAX:
            raise QuotaError(f"{name} is a number from 0 to {RATE_MAX}, not {quoted(value)}")
        rates[_RATES[name]] = int(value)
    return Quota(**rates)
