"""The header of a send request, with the long names of code 10 or the letters of 310 and 320."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from broker.limits import PRODUCE
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import INT64_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import ExtValue, Frame
from broker.remoting.protocol.header_templates import UNIQUE_KEY_START, TemplatedFrame

INT32_MAX = 2**31 - 1
PROPERTIES_SIZE_MAX = 32_767
"""Format: a record has two signed bytes for the size."""

SYS_FLAG_PREPARED = 0x4
SYS_FLAG_TRANSACTION = 0x4 | 0x8
SYS_FLAG_HOSTS_V6 = 0x10 | 0x20

_WAIT = re.compile(rb"(?:(?<=\x02)|\A)WAIT\x01[^\x02]*(?:\x02|\Z)")
_DELAY = re.compile(rb"(?:\x02|\A)DELAY\x01(?!-|0*(?:\x02|\Z))")
_TIMER = re.compile(rb"(?:\x02|\A)TIMER_(?:DELIVER_MS|DELAY_SEC|DELAY_MS)\x01")
_HALF = re.compile(rb"(?:\x02|\A)TRAN_MSG\x01true(?:\x02|\Z)")


class NeedsRoutingError(Exception):
    """What is sent is not to be delivered at once (:mod:`broker.deferred`).

    Raised where the properties of messages are read, which is once for each shape of them, so
    that plain messages pay nothing for those that wait.
    """


class HeaderNames(NamedTuple):
    """What the fields of a send request are called."""

    producer_group: str
    topic: str
    default_topic: str
    default_queues: str
    queue_id: str
    sys_flag: str
    born_timestamp: str
    flag: str
    properties: str
    reconsume_times: str
    batch: str
    required: Callable[[Mapping[str, ExtValue]], tuple[ExtValue, ...]]
    """The values of the first eight, or ``KeyError``; one call instead of eight."""


_LONG = (
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
)
_SHORT = ("a", "b", "c", "d", "e", "f", "g", "h")

LONG_NAMES = HeaderNames(*_LONG, "properties", "reconsumeTimes", "batch", itemgetter(*_LONG))
SHORT_NAMES = HeaderNames(*_SHORT, "i", "j", "m", itemgetter(*_SHORT))


class SendHeader(NamedTuple):
    """The fields that matter, checked, the properties as sent.

    ``queue_id`` is below 0 where any queue will do.
    """

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    reconsume_times: int
    properties: bytes


class _SendTemplate(NamedTuple):
    """What the headers of messages have in common that are like one model."""

    topic: str
    sys_flag: int
    flag: int
    reconsume_times: int
    before: bytes
    after: bytes
    """The properties, but for the unique key."""


def read_templated_header(request: TemplatedFrame) -> SendHeader | None:
    """As :func:`read_header` of a 310; None where it says what few of its kind do."""
    model = request.template.cached
    if not isinstance(model, _SendTemplate):
        # Java's and Go's clients always say that it is none, and what they say is compared.
        if ext_bool(request, SHORT_NAMES.batch, False):
            return None
        model = request.template.cached = _common(read_header(request, SHORT_NAMES))
    topic, sys_flag, flag, reconsume_times, before, after = model
    _, born, unique_key, queue = request.values
    try:
        born_timestamp = int(born)
        queue_id = int(queue)
    except ValueError:
        return None
    if queue_id > INT32_MAX or born_timestamp > INT64_MAX:
        return None
    properties = before + unique_key + after
    return _new(
        SendHeader,
        (topic, queue_id, sys_flag, born_timestamp, flag, reconsume_times, properties),
    )


def _common(header: SendHeader) -> _SendTemplate:
    before, mark, rest = header.properties.partition(UNIQUE_KEY_START.encode())
    _, end, after = rest.partition(b"\x02")
    if not mark:  # there is no unique key: all of it varies
        before = b""
    return _SendTemplate(
        header.topic,
        header.sys_flag,
        header.flag,
        header.reconsume_times,
        before + mark,
        end + after,
    )


def read_header(request: Frame, names: HeaderNames) -> SendHeader:
    """Raises :class:`~broker.remoting.protocol.errors.RequestError` for a field that is missing or
    wrong.
    """
    ext = request.ext
    try:
        # The common case, without a call for each field; the other path says what was wrong.
        _, topic, _, _, queue, sys_flags, born, flags = names.required(ext)
        queue_id = int(queue)  # type: ignore[arg-type]  # None is a TypeError, as it should be
        sys_flag = int(sys_flags)  # type: ignore[arg-type]  # None raises
        born_timestamp = int(born)  # type: ignore[arg-type]  # None raises
        flag = int(flags)  # type: ignore[arg-type]  # None raises
        reconsume_times = int(ext.get(names.reconsume_times) or 0)
        properties = ext.get(names.properties) or ""
    except (KeyError, TypeError, ValueError, OverflowError):
        return _read_unusual(request, names)
    if not (
        # One comparison for four numbers: the largest bit of any of them is in their union, and a
        # negative one makes it negative.
        0 <= queue_id | sys_flag | flag | reconsume_times <= INT32_MAX
        and 0 <= born_timestamp <= INT64_MAX
        and type(topic) is str
        and type(properties) is str
    ):
        return _read_unusual(request, names)
    if sys_flag & (SYS_FLAG_TRANSACTION | SYS_FLAG_HOSTS_V6):
        sys_flag = _storable_sys_flag(sys_flag, properties)
    return _new(
        SendHeader,
        (topic, queue_id, sys_flag, born_timestamp, flag, reconsume_times, properties.encode()),
    )


# The constructor that ``NamedTuple`` makes is a function of Python around this one.
_new = tuple.__new__


def _read_unusual(request: Frame, names: HeaderNames) -> SendHeader:
    def number(name: str, maximum: int = INT32_MAX) -> int:
        return ext_int(request, name, minimum=-maximum, maximum=maximum)

    ext_str(request, names.producer_group)
    ext_str(request, names.default_topic)
    number(names.default_queues)
    reconsume_times = ext_int(
        request, names.reconsume_times, 0, minimum=-INT32_MAX, maximum=INT32_MAX
    )
    properties = ext_str(request, names.properties, "")
    return SendHeader(
        ext_str(request, names.topic),
        number(names.queue_id),
        _storable_sys_flag(number(names.sys_flag), properties),
        number(names.born_timestamp, INT64_MAX),
        number(names.flag),
        reconsume_times,
        properties.encode(),
    )


def storable_properties(properties: bytes) -> bytes:
    """The property bytes as they are stored: without ``WAIT``, as RocketMQ stores them.

    Raises as :func:`storable_in_batch`.
    """
    return storable_in_batch(checked_properties(properties))


def storable_in_batch(properties: bytes) -> bytes:
    """The same for a message inside a batch, which keeps ``WAIT``: RocketMQ's
    ``SendMessageProcessor`` takes it from single messages alone.

    Raises :class:`NeedsRoutingError` where they say that the message is not to be delivered
    at once, and as :func:`checked_properties`.
    """
    _check_size(properties)
    if (
        (b"DELAY\x01" in properties and _DELAY.search(properties))
        or (b"TIMER_DE" in properties and _TIMER.search(properties))
        or (b"TRAN_MSG\x01" in properties and _HALF.search(properties))
    ):
        raise NeedsRoutingError
    return properties


def checked_properties(properties: bytes) -> bytes:
    """Without ``WAIT``, of any single message. Raises
    :class:`~broker.remoting.protocol.errors.RequestError`, code 13, where they are too long."""
    _check_size(properties)
    if b"WAIT\x01" in properties:
        properties = _WAIT.sub(b"", properties)
    return properties


def _check_size(properties: bytes) -> None:
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {len(properties)} bytes, at most {PROPERTIES_SIZE_MAX} fit",
        )


def check_keys(words: Sequence[bytes], size: int) -> None:
    """Raises :class:`~broker.remoting.protocol.errors.RequestError`, code 13, for keys of a message
    that are too many or too long; ``size`` is that of all its properties.
    """
    if len(words) > PRODUCE.keys_max:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message has {len(words)} keys, at most {PRODUCE.keys_max} are allowed",
        )
    if size <= PRODUCE.key_size_max:
        return
    longest = max(map(len, words), default=0)
    if longest > PRODUCE.key_size_max:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a key of the message has {longest} bytes, at most {PRODUCE.key_size_max} are allowed",
        )


def is_half_message(properties: bytes) -> bool:
    """Whether they say that the message is to be delivered only when its producer says so."""
    return _HALF.search(properties) is not None


def _storable_sys_flag(sys_flag: int, properties: str) -> int:
    """Without what a broker sets: it stores half messages without the bits of a transaction, and
    hosts as IPv4, whatever the client has."""
    if sys_flag & SYS_FLAG_TRANSACTION and not (
        sys_flag & SYS_FLAG_TRANSACTION == SYS_FLAG_PREPARED
        and is_half_message(properties.encode())
    ):
        # Stored as an ordinary message it would be delivered although it may be rolled back.
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"sysFlag {sys_flag} says that the message belongs to a transaction, and its "
            "properties have no TRAN_MSG that is true",
        )
    return sys_flag & ~(SYS_FLAG_TRANSACTION | SYS_FLAG_HOSTS_V6)
