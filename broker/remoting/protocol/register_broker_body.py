"""The body of a broker's registration (request 103): its topics and their version.

Plain, it is JSON::

    {"topicConfigSerializeWrapper": {"dataVersion": {"counter", "timestamp"},
                                     "topicConfigTable": {topic: {...}}},
     "filterServerList": []}

Compressed, it is a zlib stream::

    i32 size, JSON of the data version
    i32 number of topics, of each: i32 size, text "name readQueues writeQueues perm filterType"
    i32 size, JSON of the filter server list

(``RegisterBrokerBody``); brokers from 5.0 on append fields that are not needed here. The compressed
form has no ``topicSysFlag`` and no ``order``. A broker sends it if the plain form is large. The
topics of the largest allowed group (:class:`~broker.limits.StateLimits`) always fit a compressed
frame. Older groups may have more topics, and register those that fit.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from broker.limits import BODY_LIMITS, NAMESERVER
from broker.remoting.protocol.errors import FieldError, TooManyError
from broker.remoting.protocol.frame import FRAME_BODY_SIZE_MAX
from broker.remoting.protocol.java_json import decode_json, encode_json
from store.quoting import quoted
from store.text_numbers import whole_number

PLAIN_BYTES = 4 << 20
"""A larger table is compressed."""

TABLE_BYTES = FRAME_BODY_SIZE_MAX - (64 << 10)
"""The size from which a body is compressed. The rest of the frame has room for the worst growth by
compression."""

_I32 = Struct(">i")

Topics: TypeAlias = Mapping[str, Mapping[str, object]]
"""A ``topicConfigTable``: the fields of each topic, by its name."""


class DataVersion(NamedTuple):
    """The version of a broker's topic table. Versions are only compared for equality."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def to_json(self) -> dict[str, int]:
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }


class QueueData(NamedTuple):
    """The queues of one topic on one broker. ``perm``: 4 read, 2 write, 1 inherit."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0


class TopicTable(NamedTuple):
    """A decoded body."""

    data_version: DataVersion
    queues: dict[str, QueueData]
    filter_servers: list[str]


class EncodedTable(NamedTuple):
    """A body. The last ``left_out`` topics of the table have no room in it."""

    body: bytes
    compressed: bool = False
    left_out: int = 0


def encode_topic_table(data_version: Mapping[str, int], topics: Topics) -> EncodedTable:
    """The body that registers ``topics``. ``data_version``: ``counter`` and ``timestamp``."""
    body = encode_json(
        {
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version,
                "topicConfigTable": topics,
            },
            "filterServerList": [],
        }
    )
    return EncodedTable(body) if len(body) <= PLAIN_BYTES else _compressed(data_version, topics)


def _compressed(data_version: Mapping[str, int], topics: Topics) -> EncodedTable:
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
    return EncodedTable(body, True, len(topics) - len(entries))


def _sized(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def decode_topic_table(body: bytes, *, compressed: bool) -> TopicTable:
    """The table in a registration's body; an empty body is an empty table.

    Raises :class:`FieldError` if the body is malformed.
    """
    if not body:
        return TopicTable(DataVersion(), {}, [])
    if compressed:
        return _Inflated(body).table()
    document = _json_object(body, "the body")
    # Brokers before 3.0.11 send only the inner object.
    wrapper = _mapping(document.get("topicConfigSerializeWrapper", document), "the topic table")
    topics = _mapping(wrapper.get("topicConfigTable") or {}, "topicConfigTable")
    _check_count(len(topics))
    return TopicTable(
        data_version_of(wrapper.get("dataVersion") or {}),
        {
            _checked_name(name): _checked_queues(
                name, _queue_data(_mapping(config, f"topic {name[:128]}"))
            )
            for name, config in topics.items()
        },
        _strings(document.get("filterServerList") or []),
    )


def decode_data_version(body: bytes) -> DataVersion:
    """The body of request 322. Raises :class:`FieldError` if it is malformed."""
    return data_version_of(_json_object(body, "the body")) if body else DataVersion()


def data_version_of(document: object) -> DataVersion:
    """A data version from its decoded JSON. Raises :class:`FieldError`."""
    fields = _mapping(document, "dataVersion")
    return DataVersion(
        _integer(fields, "timestamp", 0),
        _integer(fields, "counter", 0),
        _integer(fields, "stateVersion", 0),
    )


class _Inflated:
    """A reader of the compressed form."""

    def __init__(self, body: bytes) -> None:
        inflater = zlib.decompressobj()
        try:
            self._data = inflater.decompress(body, BODY_LIMITS.inflated_size)
        except zlib.error as error:
            raise FieldError(f"the body is not a zlib stream: {error}") from None
        if inflater.unconsumed_tail:
            raise FieldError(f"the body inflates to more than {BODY_LIMITS.inflated_size} bytes")
        self._position = 0

    def table(self) -> TopicTable:
        data_version = data_version_of(_json_object(self._sized(), "dataVersion"))
        queues: dict[str, QueueData] = {}
        count = self._i32()
        _check_count(count)
        for _ in range(min(count, NAMESERVER.topics_max)):
            name, data = _queue_data_of_text(self._sized())
            queues[_checked_name(name)] = _checked_queues(name, data)
        try:
            filter_servers = decode_json(self._sized())
        except ValueError as error:
            raise FieldError(f"filterServerList is not JSON: {error}") from None
        return TopicTable(data_version, queues, _strings(filter_servers or []))

    def _i32(self) -> int:
        start = self._position
        self._position = start + _I32.size
        if self._position > len(self._data):
            raise FieldError(f"the inflated body ends at byte {len(self._data)}, inside a number")
        number: int = _I32.unpack_from(self._data, start)[0]
        return number

    def _sized(self) -> bytes:
        size = self._i32()
        start = self._position
        self._position = start + size
        if size < 0 or self._position > len(self._data):
            raise FieldError(f"a size of {size} at byte {start - 4} leaves the inflated body")
        return self._data[start : self._position]


def _check_count(topics: int) -> None:
    if topics > NAMESERVER.topics_max:
        raise TooManyError(f"it has {topics} topics", NAMESERVER.topics_max)


def _checked_name(topic: str) -> str:
    if len(topic) > NAMESERVER.name_size_max:
        what = f"the name of a topic has {len(topic)} characters"
        raise TooManyError(what, NAMESERVER.name_size_max)
    return topic


def _checked_queues(topic: str, data: QueueData) -> QueueData:
    """Limits the queue numbers to what clients can handle. The topic is not refused: older brokers
    took any number."""
    read, write, *_ = data
    if min(read, write) < 0:
        raise FieldError(f"the topic {topic} has {min(read, write)} queues")
    most = NAMESERVER.queues_max
    if max(read, write) <= most:
        return data
    return data._replace(read_queues=min(read, most), write_queues=min(write, most))


def _queue_data_of_text(text: bytes) -> tuple[str, QueueData]:
    try:
        name, read_queues, write_queues, perm = text.decode().split(" ")[:4]
        return name, QueueData(*map(whole_number, (read_queues, write_queues, perm)))
    except ValueError:
        raise FieldError(f"{quoted(text)} does not describe a topic") from None


def _queue_data(config: Mapping[str, Any]) -> QueueData:
    # Java's encoder omits nothing, but its decoder fills gaps with these.
    return QueueData(
        _integer(config, "readQueueNums", 16),
        _integer(config, "writeQueueNums", 16),
        _integer(config, "perm", 6),
        _integer(config, "topicSysFlag", 0),
    )


def _json_object(data: bytes, subject: str) -> Mapping[str, Any]:
    try:
        return _mapping(decode_json(data), subject)
    except ValueError as error:
        raise FieldError(f"{subject} is not JSON: {error}") from None


def _mapping(value: object, subject: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(f"{subject} is not a JSON object")
    return value


def _strings(value: object) -> list[str]:
    if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        raise FieldError("filterServerList is not a list of strings")
    return value


def _integer(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise FieldError(f"{name} is not an integer: {quoted(value)}")
    return value
