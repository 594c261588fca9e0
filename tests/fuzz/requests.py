"""Requests with any code, which get better as a server answers them.

A refusal that names a missing field adds it to what its code gets. Values of the answers (ids,
offsets) are used in later requests.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from random import Random

import broker.nameserver
import broker.remoting.processors
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame, encode_request
from tests.broker.single_broker import batched
from tests.fuzz.mutation import mutated
from tests.fuzz.samples import GROUP, HEARTBEAT, LOCKS, PROPERTIES, TOPICS

LAST_CODE = 420
"""Codes up to this are tried, and those that have a name."""

FIELD = re.compile(r'ext_\w+\(\s*request,\s*"(\w+)"')
MISSING = re.compile(r"missing field (\w+)")
SOURCES = (broker.remoting.processors, broker.nameserver)

ADMIN_POWER = frozenset(
    (
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.CHANGE_GROUP_MEMBERS,
        RequestCode.TRANSFER_LEADERSHIP,
    )
)
"""With these requests an admin can stop a broker from taking messages. Others cannot."""

TEXTS: Mapping[str, tuple[str, ...]] = {
    "topic": ("orders", "%RETRY%readers", "TBW102", "SCHEDULE_TOPIC_XXXX", "none"),
    "b": ("orders", "new-{}", "%RETRY%readers", "RMQ_SYS_TRANS_HALF_TOPIC"),
    "c": ("TBW102",),
    "defaultTopic": ("TBW102",),
    "i": tuple(properties.decode() for properties in PROPERTIES),
    "subscription": ("*", "a || b", "x > 1 AND y IN ('a', 'b')"),
    "expressionType": ("TAG", "SQL92"),
    "suspendTimeoutMillis": ("0", "20", "15000"),
    "sysFlag": ("0", "2", "4", "6", "14", "8"),
    "msgId": ("7F00000100002A9F0000000000000000",),
    "originMsgId": ("7F00000100002A9F0000000000000000",),
    "perm": ("2", "4", "6"),
    "namespace": ("ORDER_TOPIC_CONFIG", "fuzz"),
    "brokerAddr": ("127.0.0.1:10911", "10.0.0.1:{}"),
    "brokerName": ("broker-a", "broker-{}"),
    "clusterName": ("DefaultCluster",),
    "compressed": ("true", "false"),
}
"""First values of fields; ``{}`` becomes a number."""

GROUPS = ("readers", "CID_x", "group-{}")
NUMBERS = ("0", "1", "3", "16", "-1", "1700000000000", "2147483647", "9223372036854775807", "", "x")
BODIES = (
    b"",
    b"body",
    HEARTBEAT,
    GROUP,
    LOCKS,
    TOPICS,
    b"{}",
    b"fileReservedTime=48\n",
    *(batched(b"body", properties) * 3 for properties in PROPERTIES),
    b'{"topic":"orders","offsetTable":{}}',
)
KEPT_VALUES = 32


def known_fields() -> list[str]:
    """The names of all fields that handlers read."""
    found: set[str] = set("abcdefghijklm") | set(TEXTS)
    for package in SOURCES:
        for path in Path(package.__path__[0]).glob("*.py"):
            found |= set(FIELD.findall(path.read_text()))
    return sorted(found)


class Requests:
    """A source of requests. The same seed and answers give the same requests."""

    def __init__(self, rng: Random, *, codes_left_out: frozenset[int] = frozenset()) -> None:
        self._rng = rng
        named = [int(code) for code in RequestCode if code not in codes_left_out]
        self._codes = named * 8 + [n for n in range(LAST_CODE) if n not in codes_left_out]
        self._fields = known_fields()
        self._needed: dict[int, list[str]] = defaultdict(list)
        self._values: dict[str, list[str]] = {name: list(texts) for name, texts in TEXTS.items()}
        self._number = 0

    def next(self) -> tuple[int, dict[str, str], bytes]:
        """Code, fields and body of the next request."""
        rng = self._rng
        code = rng.choice(self._codes)
        needed = self._needed[code]
        names = [name for name in needed if rng.random() < 0.97]
        names += rng.sample(self._fields, rng.choice((0, 0, 1, 3, 8)))
        body = rng.choice(BODIES)
        if rng.random() < 0.5:
            body = mutated(rng, body, BODIES)
        return code, {name: self._value(name) for name in names}, body

    def frame(self, opaque: int) -> bytes:
        """The next request as a frame, in either form of header. Sometimes it is broken."""
        code, ext, body = self.next()
        rng = self._rng
        head = encode_request(
            code,
            opaque,
            ext,
            len(body),
            flag=rng.choice((0, 0, 0, 2, 1)),
            serialization=rng.choice((0, 1)),
        )
        whole = bytes(head) + body
        return mutated(rng, whole, BODIES) if rng.random() < 0.5 else whole

    def learn(self, code: int, answer: Frame) -> None:
        """Learns from an answer to ``code``."""
        missing = MISSING.search(answer.remark or "")
        if missing and missing[1] not in self._needed[code]:
            self._needed[code].append(missing[1])
        for name, value in answer.ext.items():
            values = self._values.setdefault(name, [])
            values.append(str(value)[:1000])
            if len(values) > KEPT_VALUES:
                del values[self._rng.randrange(KEPT_VALUES)]

    @property
    def codes_known(self) -> int:
        """For how many codes a field was learned."""
        return sum(1 for needed in self._needed.values() if needed)

    def _value(self, name: str) -> str:
        rng = self._rng
        values = self._values.get(name)
        if values is None:
            values = list(GROUPS if "roup" in name or name == "a" else NUMBERS)
        self._number += 1
        text = rng.choice(values).replace("{}", str(self._number % 500))
        kind = rng.randrange(24)
        if kind == 0:
            return mutated(rng, text.encode(), BODIES).decode(errors="replace")
        if kind == 1:
            return rng.choice(NUMBERS)
        if kind == 2:
            return text * rng.choice((2, 200, 4000))
        return text
