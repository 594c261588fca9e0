"""What a quota says, and how it is written as a setting.

A quota is a setting of the broker group (:mod:`broker.config.dynamic_settings`), so all nodes have
the same, and it needs no command of its own::

    quota.topic.clicks = produceBytes=1048576,consumeMessages=500
    quota.client.*     = produceMessages=100

The second stands for each client that has none of its own.
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
"""In the place of a name: each that has no quota of its own."""

NAME_SIZE_MAX = 255
"""Format: RocketMQ's longest name of a group."""

RATE_MAX = 1 << 50
"""Format: more is no limit."""

_NAME = re.compile(r"[^\s=]+")
_RATES = {
    "produceMessages": "produce_messages",
    "produceBytes": "produce_bytes",
    "consumeMessages": "consume_messages",
    "consumeBytes": "consume_bytes",
}


class QuotaError(ValueError):
    """A quota that cannot be; says which and why."""


class OverQuotaError(BusyError):
    """Who sends has a quota, and as much of it is owed or waits as may. Nothing was stored."""

    def __init__(self, waiting: int, limit: int, what: str, retry_seconds: int) -> None:
        """``retry_seconds``: after which another try may succeed."""
        super().__init__(waiting, limit, what)
        self.retry_seconds = retry_seconds


class Entity(NamedTuple):
    """Who, or what, has a quota."""

    type: str
    """One of :data:`ENTITY_TYPES`."""
    name: str

    @property
    def setting(self) -> str:
        """The name of its setting."""
        return f"{PREFIX}{self.type}.{self.name}"


class Quota(NamedTuple):
    """Rates, each in a second; 0 is no limit. Bytes are those of bodies sent, of records given."""

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
    """The reverse of ``str``; an empty text is no limit at all. Raises :class:`QuotaError`."""
    rates: dict[str, int] = {}
    for each in filter(None, map(str.strip, text.split(","))):
        name, _, value = each.partition("=")
        if name not in _RATES:
            raise QuotaError(f"{quoted(each)} is not RATE=NUMBER with one of {', '.join(_RATES)}")
        if not re.fullmatch("[0-9]{1,16}", value) or not 0 <= int(value) <= RATE_MAX:
            raise QuotaError(f"{name} is a number from 0 to {RATE_MAX}, not {quoted(value)}")
        rates[_RATES[name]] = int(value)
    return Quota(**rates)
