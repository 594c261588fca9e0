"""The header of a send request, with the long names of code 10 or the letters of 310 and 320."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple

from broker.errors import IllegalMessageError
from broker.ingest.message_properties import is_half_message
from broker.ingest.send_request import SendOptions, SendRequest
from broker.remoting.protocol.ext_fields import INT32_MAX, INT64_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import ExtValue, Frame
from broker.remoting.protocol.header_templates import TemplatedFrame

SYS_FLAG_PREPARED = 0x4
SYS_FLAG_TRANSACTION = 0x4 | 0x8
SYS_FLAG_HOSTS_V6 = 0x10 | 0x20


class HeaderNames(NamedTuple):
    """The names of the fields of a send request."""

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
    times_max: str
    batch: str
    required: Callable[[Mapping[str, ExtValue]], tuple[ExtValue, ...]]
    """Gets the values of the first eight fields in one call; raises ``KeyError``."""


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

LONG_NAMES = HeaderNames(
    *_LONG, "properties", "reconsumeTimes", "maxReconsumeTimes", "batch", itemgetter(*_LONG)
)
SHORT_NAMES = HeaderNames(*_SHORT, "i", "j", "l", "m", itemgetter(*_SHORT))


class _SendTemplate(NamedTuple):
    """The common values of the send requests of one header template."""

    topic: str
    sys_flag: int
    flag: int
    reconsume_times: int
    options: SendOptions


def read_templated_header(request: TemplatedFrame, names: HeaderNames) -> SendRequest | None:
    """As :func:`read_header`; None for a header with rare fields."""
    template = request.template.cached
    if not isinstance(template, _SendTemplate):
        # Java's and Go's clients always send false, which stands in the compared bytes.
        if ext_bool(request, names.batch, False):
            return None
        header = read_header(request, names)
        if ext_int(request, names.sys_flag) & SYS_FLAG_TRANSACTION:
            return header  # whether that is allowed depends on the properties
        template = request.template.cached = _SendTemplate(
            header.topic, header.sys_flag, header.flag, header.reconsume_times, header.options
        )
    topic, sys_flag, flag, reconsume_times, options = template
    born, queue = request.values[1:3]
    try:
        born_timestamp = int(born)
        queue_id = int(queue)
    except ValueError:
        return None
    if queue_id > INT32_MAX or born_timestamp > INT64_MAX:
        return None
    properties = request.text.encode()
    return _new(
        SendRequest,
        (topic, queue_id, sys_flag, born_timestamp, flag, reconsume_times, properties, options),
    )


def read_header(request: Frame, names: HeaderNames) -> SendRequest:
    """The request of a header. Raises :class:`~broker.remoting.protocol.errors.RequestError` for a
    field that is missing or wrong.
    """
    ext = request.ext
    try:
        # The common case, without a call for each field. The other path names the mistake.
        _, topic, default_topic, default_queues, queue, sys_flags, born, flags = names.required(ext)
        queue_id = int(queue)  # type: ignore[arg-type]  # None is a TypeError, as it should be
        sys_flag = int(sys_flags)  # type: ignore[arg-type]  # None raises
        born_timestamp = int(born)  # type: ignore[arg-type]  # None raises
        flag = int(flags)  # type: ignore[arg-type]  # None raises
        tries = ext.get(names.reconsume_times) or 0
        reconsume_times = int(tries)
        properties = ext.get(names.properties) or ""
        queues_max = int(default_queues)  # type: ignore[arg-type]  # None raises
        times_max = -1 if names.times_max not in ext else ext_int(request, names.times_max, -1)
        # int() also accepts 1_0 and digits of other alphabets.
        digits = f"{queue}{sys_flags}{born}{flags}{tries}{default_queues}"
        if not (digits.isascii() and digits.isdigit()):
            return _read_unusual(request, names)
    except (KeyError, TypeError, ValueError, OverflowError):
        return _read_unusual(request, names)
    if not (
        # One comparison for four numbers: their union has the largest bit of each, and a
        # negative one makes it negative.
        0 <= queue_id | sys_flag | flag | reconsume_times <= INT32_MAX
        and 0 <= born_timestamp <= INT64_MAX
        and -INT32_MAX <= queues_max <= INT32_MAX
        and -INT64_MAX <= times_max <= INT64_MAX
        and type(topic) is str
        and type(default_topic) is str
        and type(properties) is str
    ):
        return _read_unusual(request, names)
    if sys_flag & (SYS_FLAG_TRANSACTION | SYS_FLAG_HOSTS_V6):
        sys_flag = _storable_sys_flag(sys_flag, properties)
    return _new(
        SendRequest,
        (
            topic,
            queue_id,
            sys_flag,
            born_timestamp,
            flag,
            reconsume_times,
            properties.encode(),
            _new(SendOptions, (default_topic, queues_max, times_max, b"")),
        ),
    )


# The constructor that ``NamedTuple`` makes is a function of Python around this one.
_new = tuple.__new__


def _read_unusual(request: Frame, names: HeaderNames) -> SendRequest:
    def number(name: str, maximum: int = INT32_MAX) -> int:
        return ext_int(request, name, minimum=-maximum, maximum=maximum)

    ext_str(request, names.producer_group)
    options = SendOptions(
        ext_str(request, names.default_topic),
        number(names.default_queues),
        ext_int(request, names.times_max, -1),
    )
    reconsume_times = ext_int(
        request, names.reconsume_times, 0, minimum=-INT32_MAX, maximum=INT32_MAX
    )
    properties = ext_str(request, names.properties, "")
    return SendRequest(
        ext_str(request, names.topic),
        number(names.queue_id),
        _storable_sys_flag(number(names.sys_flag), properties),
        number(names.born_timestamp, INT64_MAX),
        number(names.flag),
        reconsume_times,
        properties.encode(),
        options,
    )


def _storable_sys_flag(sys_flag: int, properties: str) -> int:
    """The flag without the bits that only brokers set: half messages are stored without the bits of
    a transaction, and hosts as IPv4."""
    if sys_flag & SYS_FLAG_TRANSACTION and not (
        sys_flag & SYS_FLAG_TRANSACTION == SYS_FLAG_PREPARED
        and is_half_message(properties.encode())
    ):
        # An ordinary message would be delivered although its transaction may be rolled back.
        raise IllegalMessageError(
            f"sysFlag {sys_flag} says that the message belongs to a transaction, but its "
            "properties have no TRAN_MSG=true",
        )
    return sys_flag & ~(SYS_FLAG_TRANSACTION | SYS_FLAG_HOSTS_V6)
