"""The topics in a registration (request 103), so that it fits a frame whatever there are.

As a rule it is the JSON that all NameServers read. Where that is large it is compressed, in the
form of RocketMQ's brokers (``compressRegister``; :mod:`broker.remoting.protocol.register_broker_body`),
which has no ``topicSysFlag`` and no ``order``. What a group may have (``StateLimits``) always fits
so. Older groups may have more: they say what fits, and the log says what does not.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from struct import Struct

from broker.limits import NAMESERVER, STATE
from broker.remoting.protocol.frame import FRAME_BODY_SIZE_MAX
from broker.remoting.protocol.java_json import encode_json

PLAIN_BYTES = 4 << 20
"""A larger table is compressed."""

TABLE_BYTES = FRAME_BODY_SIZE_MAX - (64 << 10)
"""Of which a body is compressed: more than what compressing adds at worst is left."""

THROTTLED_BYTES = 256 << 10
BYTES_A_SECOND = 8 << 20

_I32 = Struct(">i")

logger = logging.getLogger("dledger.registration")

Topics = Mapping[str, Mapping[str, object]]


def throttle_seconds(size: int) -> float:
    """How long to wait after a table of that size before the next: it is made and read again as a
    whole for each topic that is created."""
    return 0.0 if size <= THROTTLED_BYTES else min(size / BYTES_A_SECOND, 1.0)


def plain_body(data_version: Mapping[str, int], topics: Topics) -> bytes:
    """The JSON form."""
    return encode_json(
        {
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version,
                "topicConfigTable": topics,
            },
            "filterServerList": [],
        }
    )


def compressed_body(data_version: Mapping[str, int], topics: Topics) -> tuple[bytes, int]:
    """The compressed form, and how many topics at its end had no room."""
    entries: list[bytes] = []
    size = 0
    for name, topic in topics.items():
        entry = "{} {readQueueNums} {writeQueueNums} {perm} SINGLE_TAG".format(
            name, **topic
        ).encode()
        size += _I32.size + len(entry)
        if size > TABLE_BYTES or len(entries) >= NAMESERVER.topics_max:
            break
        entries.append(_sized(entry))
    head = _sized(encode_json(data_version)) + _I32.pack(len(entries))
    body = zlib.compress(b"".join((head, *entries, _sized(b"[]"))), level=1)
    return body, len(topics) - len(entries)


class RegistrationBody:
    """The newest one: it is told to each NameServer, every half a minute, and seldom changes."""

    def __init__(self) -> None:
        self._of: tuple[Mapping[str, int], Topics] | None = None
        self._encoded = (b"", False)

    def encoded(self, data_version: Mapping[str, int], topics: Topics) -> tuple[bytes, bool]:
        """The body, and whether it is compressed."""
        of = (data_version, topics)
        if self._of is None or self._of[1] is not topics or self._of[0] != data_version:
            self._encoded = _encoded(data_version, topics)
            self._of = of
        return self._encoded


def _encoded(data_version: Mapping[str, int], topics: Topics) -> tuple[bytes, bool]:
    body = plain_body(data_version, topics)
    if len(body) <= PLAIN_BYTES:
        return body, False
    body, left_out = compressed_body(data_version, topics)
    if left_out:
        logger.error(
            "%d of %d topics have no room in a registration and are not told to NameServers, so "
            "nobody finds them: delete topics that nobody needs, %d are allowed",
            left_out,
            len(topics),
            STATE.topics_max,
        )
    return body, True


def _sized(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data
