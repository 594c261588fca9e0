"""Every decoder of the product, with inputs that grow: a beginning, a unit many times, an end.

Whoever writes a decoder adds it here; ``test_linear.py`` finds those that are missing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from broker.client.message import MessageQueue
from broker.client.pulled import PulledBatch, inflated
from broker.client.resets import reset_offsets
from broker.client.routes import parse_name_servers
from broker.client.topicroute import decode_route
from broker.commands import decode_commands
from broker.config import Endpoint, parse_config
from broker.deferred.properties import with_properties
from broker.filter.sql92 import parse_selector
from broker.http import produce as http_produce
from broker.members import parse_member
from broker.nameserver.topictable import decode_data_version, decode_topic_table
from broker.processors import clients, relay
from broker.processors.batchbody import stage_batch
from broker.processors.filters import SCAN_LIMITS, selected
from broker.processors.jsonbody import json_object, objects_of
from broker.processors.locks import LockProcessor
from broker.processors.sendheader import (
    LONG_NAMES,
    SHORT_NAMES,
    read_header,
    read_like_header,
    storable_properties,
)
from broker.processors.shapes import Stager, origin
from broker.processors.topics import _group_config
from broker.reader import Found, Status
from broker.remoting.fields import ext_bool, ext_int, ext_str
from broker.remoting.frame import Frame, decode_frame, decode_header, encode_request
from broker.remoting.javajson import decode_json
from broker.remoting.likeness import LikeFrame
from broker.remoting.stream import FrameReader
from broker.settings import changed_settings
from broker.state import BrokerState
from broker.subscription import Subscription, tag_codes
from dledger.codec import decode_message, seal
from dledger.configuration import Configuration
from dledger.frames import MessageReader
from store.batch import Run, decode_batch, encode_batch
from store.checkpoint import (
    CHECKPOINT_HEADER,
    CHECKPOINT_MAGIC,
    CHECKPOINT_VERSION,
    decode_checkpoint,
)
from store.entry import EntryKind, build_entry, decode_entries, decode_entry
from store.formatfile import decode_format
from store.heldfile import unpack_held
from store.layout import parse_segment_name
from store.machinestate import decode_machine_state
from store.manifest import decode_manifest
from store.outside import quoted, shortened
from store.properties import decode_properties, find_property
from store.record import decode_record, iter_records, record_bounds, stage_message
from store.slotfile import decode_slot, encode_slot
from store.statefiles import HardState, Mark


class Decoder(NamedTuple):
    """``read`` gets the beginning, so many units, and the end, of each shape."""

    name: str
    read: Callable[[bytes], object]
    shapes: Sequence[tuple[bytes, bytes, bytes]]


JSON_SHAPES = [
    (b'"', rb"\"", b""),
    (b'{"a":"', rb"\"", b""),
    (b"", b'"', b""),
    (b"", rb'"\"', b""),
    (b"{", b"1 ", b""),
    (b"{", b"1", b""),
    (b"{", b" ", b""),
    (b"{1", b" ", b"x"),
    (b"", b"{", b""),
    (b"", b"{1:", b""),
    (b"", b"{{", b""),
    (b"{", b"{},", b"}"),
    (b"{", b'{"a":1}:2,', b"0:0}"),
    (b"{{", b'"a":1,', b'"b":2}:3}'),
    (b"{", b"1:2,", b"3:4}"),
    (b"{0:[", b"1,", b"2]}"),
    (b"", b"[],", b""),
    (b"", b"]", b""),
    (b"", b"\\", b""),
    (b"", b"\xff", b""),
    (b'{0:"', b"\\u0061", b'"}'),
    (b'{"a":[', b"0,", b"0]}"),
    (b"{", b'"a":1,', b'"b":2}'),
    (b"[", b" " * 7, b"]"),
    (b'{"a":', b"9", b"}"),
]
"""Text that is JSON, or fastjson's, or nearly."""

SQL_SHAPES = [
    (b"a = ", b"0", b""),
    (b"a = ", b"-", b""),
    (b"a = 1 ", b"--", b""),
    (b"a = 1 ", b"--\n", b""),
    (b"a = 1 ", b"/*", b""),
    (b"a = 1 ", b"/* */", b""),
    (b"a = ", b"'", b""),
    (b"a = '", b"''", b"'"),
    (b"a = '", b"x", b""),
    (b"a = ", b"9", b""),
    (b"a = ", b"1.", b""),
    (b"a = ", b"1e", b""),
    (b"a = 0.", b"1", b"e"),
    (b"a IN (", b"'b',", b"'c')"),
    (b"", b"(", b""),
    (b"", b"NOT ", b"a"),
    (b"a", b" = a", b""),
    (b"a = 1", b" AND a = 1", b""),
    (b"", b"a ", b""),
    (b"", b" ", b"a"),
    (b"", b"\x00", b""),
    (b"", b"$", b""),
]

PROPERTY_SHAPES = [
    (b"", b"\x01", b""),
    (b"", b"\x02", b""),
    (b"", b"a\x01b\x02", b""),
    (b"KEYS\x01", b"a ", b"\x02"),
    (b"", b"WAIT\x01", b""),
    (b"", b"WAIT\x01\x02", b""),
    (b"DELAY\x01", b"0", b"1"),
    (b"", b"DELAY\x010", b""),
    (b"", b"DELAY\x010\x02", b""),
    (b"", b"TIMER_DE", b"DELAY\x01"),
    (b"", b"TRAN_MSG\x01t", b""),
    (b"", b"UNIQ_KEY\x01", b""),
    (b"UNIQ_KEY\x01", b"a", b"\x02"),
    (b"TAGS\x01", b"a", b"\x02"),
    (b"TAGS\x01", b"\xff", b"\x02"),
]

TAG_SHAPES = [
    (b"", b"|", b""),
    (b"", b"a||", b"b"),
    (b"", b"||", b""),
    (b"", b" ", b""),
    (b"", b"a", b""),
    (b"", "ä||".encode(), b""),
]

LINE_SHAPES = [
    (b"", b"\n", b""),
    (b"", b"=", b""),
    (b"", b"a=b\n", b""),
    (b"fileReservedTime=", b"1", b""),
    (b"fileReservedTime=1\n", b"fileReservedTime=1\n", b""),
    (b"", b" ", b""),
    (b"", b"#\n", b""),
    (b"", b"127.0.0.1:1;", b""),
    (b"", b"1.", b":1"),
    (b"", b":", b""),
    (b"1.1.1.1:", b"1", b""),
]

# Not of keys with very many dots, nor of a text with very many escapes, for which tomllib takes
# quadratic time: therefore ``CONFIG_SIZE_MAX``.
TOML_SHAPES = [
    (b"a = ", b"[", b""),
    (b"a = ", b"[[],", b""),
    (b"a = '''", b"'", b""),
    (b'a = "', b"x", b""),
    (b"", b"[a]\n", b""),
    (b"a = [", b"1,", b"]"),
    (b"a = {", b"b = 1,", b"}"),
    (b"a = ", b"1", b"x"),
    (b"a = ", b"1_", b"x"),
    (b"", b"#\n", b""),
    (b"", b" ", b"a"),
    (b"namesrv = [", b'"127.0.0.1:9876",', b"]"),
]

MSGPACK_SHAPES = [
    (b"", b"\x91", b""),
    (b"", b"\x81", b""),
    (b"\xdc\xff\xff", b"\xc0", b""),
    (b"\xdd\xff\xff\xff\xff", b"\x01", b""),
    (b"\xdf\x00\x00\xff\xff", b"\xa1a\x00", b""),
    (b"\xdb\x00\x00\xff\xff", b"a", b""),
    (b"", b"\xc1", b""),
    (b"", b"\xff", b""),
]

JUNK_SHAPES = [
    (b"", b"\x00", b""),
    (b"", b"\xff", b""),
    (b"", b"a", b""),
    (b"", b"\n", b""),
    (b"", b"\x00\x00\x00\x01", b""),
    (b"", b"\x00\x00\x00\x08\x00\x00\x00\x00", b""),
    (b"", b"1 ", b""),
]
"""For what is read from files, where a made-up beginning is refused at once."""


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode(errors="replace"))


def _request(body: bytes = b"", ext: dict[str, Any] | None = None) -> Frame:
    return Frame(0, 1, ext=ext, body=body)


def _fed_in_chunks(size: int) -> Callable[[bytes], object]:
    def feed(data: bytes) -> None:
        reader = FrameReader()
        for start in range(0, len(data), size):
            for _ in reader.feed(data[start : start + size]):
                pass

    return feed


def _whole_frame(header: bytes, body: bytes, serialization: int = 0) -> bytes:
    size = len(header)
    return struct.pack(">iI", 4 + size + len(body), serialization << 24 | size) + header + body


def _json_frame(data: bytes) -> object:
    return decode_frame(_whole_frame(b'{"code":1,"opaque":2,"extFields":' + data + b"}", b""))


_BINARY_HEAD = struct.pack(">hbhiii", 1, 0, 0, 5, 0, 0)


def _binary_ext(data: bytes) -> object:
    header = _BINARY_HEAD + struct.pack(">i", len(data)) + data
    return decode_frame(_whole_frame(header, b"", 1))


def _one_frame(size: int, unit: bytes) -> bytes:
    """The beginning of a frame whose body never ends."""
    return _whole_frame(b'{"code":1,"opaque":2}', unit * size)[:-1]


def _ext_fields(data: bytes) -> None:
    text = data.decode(errors="replace")
    for value in (text, [text], {"a": text}):
        frame = _request(ext={"a": value})
        for read in (ext_str, ext_int, ext_bool):
            try:
                read(frame, "a")
            except Exception:  # noqa: BLE001, S112 - each of them refuses some
                continue


def _send_headers(data: bytes) -> None:
    text = data.decode(errors="replace")
    usual: dict[str, Any] = dict.fromkeys(SHORT_NAMES[:8], "1")
    for name in SHORT_NAMES[:10]:
        for names in (SHORT_NAMES, LONG_NAMES):
            try:
                read_header(_request(ext={**usual, "i": "", name: text}), names)
            except Exception:  # noqa: BLE001, S112 - most of them are refused
                continue


def _like_sent(data: bytes) -> None:
    """Requests to send that are like each other, with these bytes for properties."""
    text = data.decode(errors="replace")
    reader = FrameReader()
    for number in range(3):
        ext = dict.fromkeys(SHORT_NAMES[:8], "1") | {
            "i": f"UNIQ_KEY\x01{number:032}\x02{text}",
            "e": str(number),
        }
        for frame in reader.feed(encode_request(310, number + 1, ext)):
            if isinstance(frame, LikeFrame):
                read_like_header(frame)
                _ = frame.ext


def _staged(properties: bytes) -> None:
    of = origin("topic", 0, 0, bytes(8), 0)
    stager = Stager("cluster")
    for _ in range(2):
        stager.stage(of, 0, b"body", properties)


def _batched(properties: bytes) -> bytes:
    total = 22 + 1 + len(properties)
    head = struct.pack(">iiiii", total, 0, 0, 0, 1)
    return head + b"b" + struct.pack(">h", len(properties)) + properties


def _batch(data: bytes) -> object:
    return stage_batch(Stager("cluster"), origin("topic", 0, 0, bytes(8), 0), data)


def _heartbeat(data: bytes) -> None:
    body = json_object(_request(data), "the heartbeat")
    for each in objects_of(body, "producerDataSet"):
        clients._group_name(each)
    for each in objects_of(body, "consumerDataSet"):
        clients._group_name(each)
        clients._settings(each)
        clients._subscriptions(each)


def _locks(data: bytes) -> None:
    gatherer = SimpleNamespace(check_serving=lambda: None)
    LockProcessor(SimpleNamespace(gatherer=gatherer))._read(_request(data))  # type: ignore[arg-type]


def _registration(data: bytes) -> object:
    """A compressed one that holds so many topics."""
    version = b"{}"
    topics = data.split(b";")
    body = struct.pack(">i", len(version)) + version + struct.pack(">i", len(topics))
    for topic in topics:
        body += struct.pack(">i", len(topic)) + topic
    return decode_topic_table(zlib.compress(body + struct.pack(">i", 2) + b"[]"), compressed=True)


def _produced(data: bytes) -> None:
    document = http_produce._document(data)
    http_produce._body(document)
    http_produce._properties(document)
    http_produce._queue_id(document)


def _batch_body(bodies: Sequence[bytes], properties: bytes = b"") -> bytes:
    """Of an entry with these messages."""
    staged = [
        stage_message("t", body, properties, born_timestamp=0, born_host=bytes(8))
        for body in bodies
    ]
    return b"".join(map(bytes, encode_batch(0, 0, bytes(8), [Run("t", 0, 0, staged)], b"")))


def _records(bodies: Sequence[bytes], properties: bytes = b"") -> bytes:
    return bytes(decode_batch(_batch_body(bodies, properties)).records)


def _letters(data: bytes) -> list[bytes]:
    return [data[n : n + 1] for n in range(len(data))]


def _pulled(data: bytes) -> None:
    queue = MessageQueue("t", "b", 0)
    batch = PulledBatch(queue, data, 1, frozenset((b"a",)))
    list(batch.bodies())
    for message in PulledBatch(queue, data, 1):
        _ = message.properties, message.tags, message.keys, message.unique_key, message.body


def _all_records(data: bytes) -> None:
    record_bounds(data)
    for record in iter_records(data):
        decode_properties(record.properties)


def _selected_by(expression: str) -> Callable[[bytes], object]:
    selector = parse_selector(expression)

    def select(value: bytes) -> object:
        return selector.matches({"a": value.decode(errors="replace")})

    return select


def _peer(fields: bytes) -> object:
    return decode_message(seal(fields))


def _checkpoint(payload: bytes) -> object:
    head = CHECKPOINT_HEADER.pack(
        CHECKPOINT_MAGIC,
        CHECKPOINT_VERSION,
        crc32c(payload, crc32c(struct.pack(">I", len(payload)))),
        len(payload),
    )
    return decode_checkpoint(head + payload, "a file")


def _websocket(chunk: int) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        reader = MessageReader(None, 1 << 20, lambda _message: True)  # type: ignore[arg-type]
        for start in range(0, len(data), chunk):
            piece = data[start : start + chunk]
            reader.get_buffer(0)[: len(piece)] = piece
            reader.buffer_updated(len(piece))

    return read


def _chain(bodies: Sequence[bytes]) -> bytes:
    """Entries back to back."""
    chain, parts = 0, []
    for index, body in enumerate(bodies):
        entry = build_entry(EntryKind.DATA, index, 1, 52 * index, chain, [body])
        chain = entry.chain_crc
        parts.append(bytes(entry.data))
    return b"".join(parts)


def _append(data: bytes) -> object:
    return _peer(msgpack.packb([3, 1, 0, 1, 0, _chain(_letters(data))]))


def _both(*reads: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        for one in reads:
            try:
                one(data)
            except Exception:  # noqa: BLE001, S112 - some of them refuse what others take
                continue

    return read


_LETTERS = [(b"", b"a", b"")]
_FILE = "a file"

DECODERS = [
    Decoder("decode_json", decode_json, JSON_SHAPES),
    Decoder("decode_frame of JSON", _json_frame, JSON_SHAPES),
    Decoder("decode_frame", _both(decode_frame, lambda d: decode_header(1, d, b"")), JUNK_SHAPES),
    Decoder(
        "decode_frame of binary fields",
        _binary_ext,
        [
            (b"", b"\x00\x01a\x00\x00\x00\x01b", b""),
            (b"", b"\x00\x00\x00\x00\x00\x00", b""),
            (b"\x00\x01a\x00\x01\x00\x00", b"b", b""),
            *JUNK_SHAPES,
        ],
    ),
    Decoder(
        "FrameReader.feed of a frame in small chunks",
        lambda data: [_fed_in_chunks(n)(_one_frame(1, data)) for n in (1, 3, 7)],
        _LETTERS,
    ),
    Decoder(
        "FrameReader.feed of a header in small chunks",
        lambda data: _fed_in_chunks(1)(_whole_frame(b'{"code":1,"opaque":"%b"}' % data, b"")),
        _LETTERS,
    ),
    Decoder(
        "FrameReader.feed of many frames",
        lambda data: [_fed_in_chunks(n)(data) for n in (5, 33, 1 << 30)],
        [(b"", _whole_frame(b'{"code":1,"opaque":2}', b"x"), b"")],
    ),
    Decoder("headers like one before", _like_sent, PROPERTY_SHAPES),
    Decoder(
        "fields", _ext_fields, [*JSON_SHAPES, *JUNK_SHAPES, (b"", b"9", b""), (b"1.", b"1", b"")]
    ),
    Decoder("header of a message", _send_headers, [*PROPERTY_SHAPES, (b"", b"9", b"")]),
    Decoder(
        "properties",
        _both(
            decode_properties,
            lambda data: find_property(data, b"KEYS"),
            storable_properties,
            lambda data: with_properties(data, {b"DELAY": b"1", b"REAL_TOPIC": None}),
            _staged,
        ),
        PROPERTY_SHAPES,
    ),
    Decoder(
        "body of a batch",
        _batch,
        [
            (b"", _batched(b"UNIQ_KEY\x01a\x02"), b""),
            (b"", _batched(b"UNIQ_KEY\x01a\x02") + _batched(b"KEYS\x01a b\x02"), b""),
            (b"", _batched(b""), b"\x00"),
            *JUNK_SHAPES,
        ],
    ),
    Decoder("properties in a batch", lambda data: _batch(_batched(data) * 2), PROPERTY_SHAPES),
    Decoder("filter expression", _text(parse_selector), SQL_SHAPES),
    Decoder(
        "number that a filter compares",
        _both(_selected_by("a = 1.5"), _selected_by("a = 1"), _selected_by("a > 1")),
        [
            (b"", b"1", b"x"),
            (b"", b"1", b""),
            (b"1.", b"1", b"x"),
            (b"1e", b"1", b"x"),
            (b"", b" ", b"x"),
        ],
    ),
    Decoder(
        "text that a filter compares",
        _both(
            _selected_by("a CONTAINS 'ab'"),
            _selected_by("a IN ('x', 'y')"),
            _selected_by("a = 'x'"),
        ),
        TAG_SHAPES,
    ),
    Decoder(
        "records that a filter selects",
        lambda data: selected(
            parse_selector("a = '1'"),
            0,
            Found(Status.FOUND, 1, 0, 0),
            [_records(_letters(data), b"a\x011\x02")],
            SCAN_LIMITS,
        ),
        _LETTERS,
    ),
    Decoder("tag expression", _text(tag_codes), TAG_SHAPES),
    Decoder(
        "subscription",
        _text(
            lambda text: Subscription.from_json(
                {"topic": "t", "subString": text, "subVersion": text}
            ).as_json()
        ),
        [*TAG_SHAPES, (b"", b"9", b"")],
    ),
    Decoder(
        "heartbeat",
        _heartbeat,
        [
            *JSON_SHAPES,
            (b'{"producerDataSet":[', b'{"groupName":"a"},', b'{"groupName":"b"}]}'),
            (
                b'{"consumerDataSet":[',
                b'{"groupName":"a","subscriptionDataSet":[{"topic":"t"}]},',
                b'{"groupName":"b"}]}',
            ),
            (
                b'{"consumerDataSet":[{"groupName":"a","subscriptionDataSet":[',
                b'{"topic":"t"},',
                b'{"topic":"u"}]}]}',
            ),
        ],
    ),
    Decoder(
        "locks",
        _locks,
        [
            *JSON_SHAPES,
            (
                b'{"consumerGroup":"g","clientId":"c","mqSet":[',
                b'{"topic":"t","queueId":1},',
                b'{"topic":"t","queueId":2}]}',
            ),
        ],
    ),
    Decoder("group", lambda data: _group_config(_request(data)), JSON_SHAPES),
    Decoder("settings", changed_settings, LINE_SHAPES),
    Decoder("answer with offsets", relay._offset_table, JSON_SHAPES),
    Decoder(
        "table of topics",
        lambda data: decode_topic_table(data, compressed=False),
        [
            *JSON_SHAPES,
            (b'{"topicConfigTable":{', b'"a":{},', b'"b":{}}}'),
            (b'{"filterServerList":[', b'"a",', b'"b"]}'),
        ],
    ),
    Decoder(
        "compressed table of topics",
        _registration,
        [
            (b"", b"t 1 1 6;", b""),
            (b"", b";", b""),
            (b"", b" ", b""),
            (b"t ", b"1", b" 1 6"),
        ],
    ),
    Decoder(
        "broken compression", lambda data: decode_topic_table(data, compressed=True), JUNK_SHAPES
    ),
    Decoder(
        "what inflates to much",
        lambda data: _both(
            lambda packed: decode_topic_table(packed, compressed=True),
            lambda packed: inflated(packed, 1),
        )(zlib.compress(data)),
        JUNK_SHAPES,
    ),
    Decoder("version of a table of topics", decode_data_version, JSON_SHAPES),
    Decoder(
        "message over HTTP",
        _produced,
        [
            *JSON_SHAPES,
            (b'{"body":"', b"a", b'"}'),
            (b'{"body_base64":"', b"AAAA", b'"}'),
            (b'{"body_base64":"', b"=", b'"}'),
            (b'{"body":"","keys":[', b'"a",', b'"b"]}'),
            (b'{"body":"","keys":["', b"a", b' "]}'),
            (b'{"body":"","properties":{', b'"a":"b",', b'"c":"d"}}'),
            (b'{"body":"","properties":{"a":"', b"b", b'"}}'),
        ],
    ),
    Decoder(
        "route",
        lambda data: decode_route("t", data),
        [
            *JSON_SHAPES,
            (
                b'{"queueDatas":[],"brokerDatas":[',
                b'{"brokerName":"b","brokerAddrs":{0:"a"}},',
                b'{"brokerName":"b","brokerAddrs":{}}]}',
            ),
            (
                b'{"brokerDatas":[],"queueDatas":[',
                b'{"brokerName":"b","perm":6,"writeQueueNums":1,"readQueueNums":1},',
                b'{"brokerName":"b","perm":0}]}',
            ),
        ],
    ),
    Decoder(
        "reset of offsets",
        reset_offsets,
        [
            *JSON_SHAPES,
            (
                b'{"offsetTable":{',
                b'{"topic":"t","brokerName":"b","queueId":0}:1,',
                b'{"topic":"t","brokerName":"b","queueId":1}:1}}',
            ),
        ],
    ),
    Decoder(
        "pulled messages",
        lambda data: _pulled(_records(_letters(data), b"KEYS\x01a b\x02")),
        _LETTERS,
    ),
    Decoder(
        "a pulled message's properties",
        lambda data: _pulled(_records([b""], data)),
        PROPERTY_SHAPES,
    ),
    Decoder(
        "addresses",
        _both(
            _text(parse_name_servers),
            _text(Endpoint.parse),
            _text(lambda text: parse_member(text, text, text)),
        ),
        LINE_SHAPES,
    ),
    Decoder("node.toml", _text(lambda text: parse_config(text, "/")), TOML_SHAPES),
    Decoder("message of a peer", _peer, [*MSGPACK_SHAPES, *JUNK_SHAPES]),
    Decoder("entries of a peer", _append, _LETTERS),
    Decoder(
        "what members hold",
        lambda data: _peer(msgpack.packb([6, 1, 1, 1, msgpack.packb([["n0", 1, 1]] * len(data))])),
        _LETTERS,
    ),
    Decoder(
        "frames of a peer",
        _both(_websocket(1), _websocket(7), _websocket(50_000)),
        [
            (b"", b"\x82\x01a", b""),
            (b"\x82\x7e\xff\xff", b"a", b""),
            (b"\x82\x7f\x00\x00\x00\x00\x00\x0f\xff\xff", b"a", b""),
        ],
    ),
    Decoder(
        "configuration",
        Configuration.unpack,
        [
            *JSON_SHAPES[:12],
            (
                b'{"version":1,"voters":[',
                b'"n0",',
                b'"n1"],"old_voters":[],"learners":[],"addresses":{},"incarnations":{}}',
            ),
        ],
    ),
    Decoder(
        "entries",
        lambda data: _both(decode_entries, decode_entry)(_chain(_letters(data))),
        _LETTERS,
    ),
    Decoder("broken entries", _both(decode_entries, decode_entry), JUNK_SHAPES),
    Decoder("batch", lambda data: decode_batch(_batch_body(_letters(data))), _LETTERS),
    Decoder("broken batch", decode_batch, JUNK_SHAPES),
    Decoder("records", lambda data: _all_records(_records(_letters(data))), _LETTERS),
    Decoder("broken records", _both(_all_records, decode_record), JUNK_SHAPES),
    Decoder(
        "commands",
        decode_commands,
        [*MSGPACK_SHAPES, (b"\xdd\x00\x00\x01\xf4", b"\x95\xa6offset\xa1g\xa1t\x00\x01", b"")],
    ),
    Decoder("state of a broker", BrokerState.from_bytes, MSGPACK_SHAPES),
    Decoder("state of a machine", decode_machine_state, MSGPACK_SHAPES),
    Decoder(
        "checkpoint",
        _both(_checkpoint, lambda data: decode_checkpoint(data, _FILE)),
        [*MSGPACK_SHAPES, *JUNK_SHAPES],
    ),
    Decoder(
        "small files",
        _both(
            decode_slot,
            lambda data: decode_slot(encode_slot(1, data)),
            lambda data: HardState.unpack(data, _FILE),
            lambda data: Mark.unpack(data, _FILE),
            lambda data: unpack_held(data, _FILE),
            lambda data: decode_format(data, _FILE),
            _text(parse_segment_name),
        ),
        [
            *JUNK_SHAPES,
            *MSGPACK_SHAPES,
            (b"dledger store ", b"1", b""),
            (b"dledger store 1\n", b"a b\n", b""),
        ],
    ),
    Decoder("manifest", lambda data: decode_manifest(data, _FILE), JSON_SHAPES),
    Decoder(
        "what is shown of a value",
        _both(quoted, shortened, lambda data: quoted([data] * 9), lambda data: quoted(list(data))),
        JUNK_SHAPES,
    ),
]
"""All of them."""

ELSEWHERE: dict[str, str] = {
    "broker.bench.jobs.decode_job": "reads what the command's own processes say to each other",
    "broker.cli.main._parse_command": "reads the command line",
    "broker.client.routelookup.LookUp._read": "reads with decode_route",
    "broker.reader.Log.read": "what reads a log, and no decoder",
    "broker.processors.pull.PullProcessor._read_request": "reads fields and a filter, as above",
}
"""Functions that are called like decoders and are none, and why."""
