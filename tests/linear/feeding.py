"""Feeds bytes to each decoder: as they are, or within a frame, an entry or a heartbeat."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgpack
from crc32c import crc32c

from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch
from broker.client.route.topic_route import decode_route
from broker.filter.sql92_parser import parse_selector
from broker.http import json_body as http_jsonbody
from broker.http import produce as http_produce
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.property_templates import MessageBuilder, origin
from broker.limits import HTTP
from broker.nameserver.server import read_registration
from broker.remoting.forwarded_frame import unpack_forwarded, unpack_hold
from broker.remoting.processors import client_manage
from broker.remoting.processors.json_body import json_object, objects_of
from broker.remoting.processors.lock_queues import LockProcessor
from broker.remoting.processors.send_message_header import (
    LONG_NAMES,
    SHORT_NAMES,
    read_header,
    read_templated_header,
)
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.ext_fields import ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame, encode_request
from broker.remoting.protocol.frame_reader import FrameReader
from broker.remoting.protocol.header_templates import TemplatedFrame
from broker.security.signature import is_signed_by
from dledger.wire.codec import decode_message, seal
from dledger.wire.greeting import PROTOCOL_VERSION, unpack_greeting
from dledger.wire.websocket_frames import MessageReader
from store.log.entry import EntryKind, build_entry
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.properties import decode_properties
from store.message.record import (
    PendingMessage,
    iter_records,
    make_pending_message,
    record_bounds,
)
from store.state.checkpoint import (
    CHECKPOINT_HEADER,
    CHECKPOINT_MAGIC,
    CHECKPOINT_VERSION,
    decode_checkpoint,
)
from tests.linear.decoder import is_refusal
from tests.support.frames import decode_frame


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode(errors="replace"))


def request(body: bytes = b"", ext: dict[str, Any] | None = None) -> Frame:
    return Frame(0, 1, ext=ext, body=body)


def fed_in_chunks(size: int) -> Callable[[bytes], object]:
    def feed(data: bytes) -> None:
        reader = FrameReader()
        for start in range(0, len(data), size):
            for _ in reader.feed(data[start : start + size]):
                pass

    return feed


def whole_frame(header: bytes, body: bytes, serialization: int = 0) -> bytes:
    size = len(header)
    return struct.pack(">iI", 4 + size + len(body), serialization << 24 | size) + header + body


def forwarded(data: bytes) -> object:
    """The fields of a request that a follower has passed on."""
    fields = {"forwarded": "310 409 10.0.0.1:1", "fields": data.decode(errors="replace")}
    return unpack_forwarded(Frame(RequestCode.FORWARD, 0, ext=dict(fields)))


def hold(data: bytes) -> object:
    """For how long a follower holds a client, as the leader says."""
    said = data.decode(errors="replace")
    return unpack_hold(Frame(RequestCode.HOLD_CLIENT, 0, ext={"client": said, "ms": said}))


def json_frame(data: bytes) -> object:
    return decode_frame(whole_frame(b'{"code":1,"opaque":2,"extFields":' + data + b"}", b""))


NO_LOOP = asyncio.new_event_loop()
NO_LOOP.close()

BINARY_HEAD = struct.pack(">hbhiii", 1, 0, 0, 5, 0, 0)


def binary_ext(data: bytes) -> object:
    header = BINARY_HEAD + struct.pack(">i", len(data)) + data
    return decode_frame(whole_frame(header, b"", 1))


def one_frame(size: int, unit: bytes) -> bytes:
    """The beginning of a frame whose body does not end."""
    return whole_frame(b'{"code":1,"opaque":2}', unit * size)[:-1]


def ext_fields(data: bytes) -> None:
    text = data.decode(errors="replace")
    for value in (text, [text], {"a": text}):
        frame = request(ext={"a": value})
        for read in (ext_str, ext_int, ext_bool):
            try:
                read(frame, "a")
            except Exception as error:
                if not is_refusal(error):
                    raise


def send_headers(data: bytes) -> None:
    text = data.decode(errors="replace")
    usual: dict[str, Any] = dict.fromkeys(SHORT_NAMES[:8], "1")
    for name in SHORT_NAMES[:10]:
        for names in (SHORT_NAMES, LONG_NAMES):
            try:
                read_header(request(ext={**usual, "i": "", name: text}), names)
            except Exception as error:
                if not is_refusal(error):
                    raise


def like_sent(data: bytes) -> None:
    """Send requests with equal headers, JSON and binary, with these bytes as properties."""
    text = data.decode(errors="replace")
    for serialization in (0, 1):
        reader = FrameReader()
        for number in range(3):
            ext = dict.fromkeys(SHORT_NAMES[:8], "1") | {
                "i": f"UNIQ_KEY\x01{number:032}\x02{text}",
                "e": str(number),
            }
            sent = encode_request(310, number + 1, ext, serialization=serialization)
            for frame in reader.feed(sent):
                if isinstance(frame, TemplatedFrame):
                    read_templated_header(frame, SHORT_NAMES)
                    _ = frame.ext


def staged(properties: bytes) -> None:
    of = origin("topic", 0, 0, bytes(8), 0)
    message_builder = MessageBuilder("cluster")
    for _ in range(2):
        message_builder.build(of, 0, b"body", properties)


def batched(properties: bytes) -> bytes:
    total = 22 + 1 + len(properties)
    head = struct.pack(">iiiii", total, 0, 0, 0, 1)
    return head + b"b" + struct.pack(">h", len(properties)) + properties


def batch(data: bytes) -> list[PendingMessage]:
    return decode_batch_body(MessageBuilder("cluster"), origin("topic", 0, 0, bytes(8), 0), data)


def heartbeat(data: bytes) -> None:
    body = json_object(request(data), "the heartbeat")
    for each in objects_of(body, "producerDataSet"):
        client_manage._group_name(each)
    for each in objects_of(body, "consumerDataSet"):
        client_manage._group_name(each)
        client_manage._settings(each)
        client_manage._subscriptions(each)


def route(data: bytes) -> object:
    try:
        return decode_route("t", data)
    except (KeyError, TypeError, AttributeError) as error:  # as its docstring says
        raise ValueError(f"no route: {error!r}") from error


def locks(data: bytes) -> None:
    batcher = SimpleNamespace(check_serving=lambda: None)
    LockProcessor(SimpleNamespace(batcher=batcher))._read(request(data))  # type: ignore[arg-type]  # the parts that it uses


def registration(data: bytes) -> object:
    """A compressed registration with a number of topics."""
    version = b"{}"
    topics = data.split(b";")
    body = struct.pack(">i", len(version)) + version + struct.pack(">i", len(topics))
    for topic in topics:
        body += struct.pack(">i", len(topic)) + topic
    table = zlib.compress(body + struct.pack(">i", 2) + b"[]")
    who = {"clusterName": "c", "brokerName": "b", "brokerId": "0", "brokerAddr": "a:1"}
    return read_registration(request(table, {**who, "compressed": "true"}))


def members_registered(data: bytes) -> object:
    return read_registration(request(b"{}", {"members": data.decode()}))


def greeting(data: bytes) -> None:
    unpack_greeting(seal(msgpack.packb([PROTOCOL_VERSION, "g", "n0", data.decode()])))


def lift_json_limits() -> None:
    """Long input is read twice: each pass is counted by itself, and neither only from a size on."""
    vars(http_jsonbody)["HTTP"] = HTTP._replace(containers_max=1 << 30, strings_max=1 << 30)


def counted_parts(data: bytes) -> None:
    http_jsonbody._check_parts(data)


def produced(data: bytes) -> None:
    document = http_produce._document(bytearray(data))
    http_produce._body(document)
    http_produce._properties(document)
    http_produce._queue_id(document)


def batch_body(bodies: Sequence[bytes], properties: bytes = b"") -> bytes:
    """The body of an entry with these messages."""
    staged = [
        make_pending_message("t", body, properties, born_timestamp=0, born_host=bytes(8))
        for body in bodies
    ]
    return b"".join(map(bytes, encode_batch(0, 0, bytes(8), [QueueRun("t", 0, 0, staged)], b"")))


def records(bodies: Sequence[bytes], properties: bytes = b"") -> bytes:
    return bytes(decode_batch(batch_body(bodies, properties)).records)


def letters(data: bytes) -> list[bytes]:
    return [data[n : n + 1] for n in range(len(data))]


def pulled(data: bytes) -> None:
    queue = MessageQueue("t", "b", 0)
    batch = PulledBatch(queue, data, 1, frozenset((b"a",)))
    list(batch.bodies())
    for message in PulledBatch(queue, data, 1):
        _ = message.properties, message.tags, message.keys, message.unique_key, message.body


def all_records(data: bytes) -> None:
    record_bounds(data)
    for record in iter_records(data):
        decode_properties(record.properties)


def selected_by(expression: str) -> Callable[[bytes], object]:
    selector = parse_selector(expression)

    def select(value: bytes) -> object:
        return selector.matches({"a": value.decode(errors="replace")})

    return select


def nested_ranges(data: bytes) -> object:
    """Reads and evaluates a filter expression with one level of nesting for each 60 bytes: as many
    as are allowed, for the largest input."""
    levels = len(data) // 60
    nested = "-(" * levels + "a" + " BETWEEN 1 AND 2)" * levels
    return parse_selector(f"{nested} IS NULL").matches({"a": "1"})


def peer(fields: bytes) -> object:
    return decode_message(seal(fields))


def checkpoint(payload: bytes) -> object:
    head = CHECKPOINT_HEADER.pack(
        CHECKPOINT_MAGIC,
        CHECKPOINT_VERSION,
        crc32c(payload, crc32c(struct.pack(">I", len(payload)))),
        len(payload),
    )
    return decode_checkpoint(head + payload, "a file")


def websocket(chunk: int) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        aiohttps = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=NO_LOOP), loop=NO_LOOP)
        reader = MessageReader(aiohttps, 1 << 20, lambda _message: True)
        for start in range(0, len(data), chunk):
            piece = data[start : start + chunk]
            reader.get_buffer(0)[: len(piece)] = piece
            reader.buffer_updated(len(piece))

    return read


def chain(bodies: Sequence[bytes]) -> bytes:
    """Entries back to back."""
    chain, parts = 0, []
    for index, body in enumerate(bodies):
        entry = build_entry(EntryKind.DATA, index, 1, 52 * index, chain, [body])
        chain = entry.chain_crc
        parts.append(bytes(entry.data))
    return b"".join(parts)


def append(data: bytes) -> object:
    return peer(msgpack.packb([3, 1, 0, 1, 0, chain(letters(data))]))


def signed(data: bytes) -> object:
    """A request with as many fields as there are bytes, and these bytes for its body."""
    ext: dict[str, object] = {f"field{number}": "" for number in range(len(data))}
    return is_signed_by(b"key", {**ext, "Signature": "x"}, data)


def both(*reads: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        for one in reads:
            try:
                one(data)
            except Exception as error:
                if not is_refusal(error):
                    raise

    return read
