"""Every decoder of the product, with inputs that grow.

A new decoder must be added here; ``test_linear.py`` finds those that are missing.
"""

from __future__ import annotations

import zlib
from functools import partial

import msgpack

from broker.admin.membership import parse_member
from broker.cli.backup.backup_index import BackupIndex
from broker.client.consumer.offset_reset_body import reset_offsets
from broker.client.received_message import decompressed
from broker.filter.subscription import Subscription
from broker.ingest.message_properties import storable_properties
from broker.pop.receipt_handle import parse_handle
from broker.remoting.processors import relay_to_consumer
from broker.remoting.processors.topic_and_group_admin import _group_config
from broker.remoting.protocol.addresses import parse_name_servers
from broker.remoting.protocol.frame import decode_header
from broker.remoting.protocol.java_json import decode_json
from broker.remoting.protocol.register_broker_body import decode_data_version, decode_topic_table
from broker.scheduled.recall_handle import parse_recall_handle
from broker.scheduled.system_properties import with_properties
from broker.security.accounts import unpack_account, unpack_white_list
from broker.security.cluster_secrets import parse_cluster_secrets
from broker.security.tokens import read_token
from dledger.raft.configuration import Configuration
from dledger.wire.endpoint import Endpoint
from dledger.wire.features import unpack_features
from store.message.properties import decode_properties, find_property
from tests.linear.decoder import LETTERS, Decoder
from tests.linear.feeding import (
    append,
    batch,
    batched,
    binary_ext,
    both,
    counted_parts,
    ext_fields,
    fed_in_chunks,
    forwarded,
    greeting,
    heartbeat,
    hold,
    json_frame,
    letters,
    like_sent,
    locks,
    members_registered,
    one_frame,
    peer,
    produced,
    pulled,
    records,
    registration,
    request,
    route,
    send_headers,
    signed,
    staged,
    text,
    websocket,
    whole_frame,
)
from tests.linear.filter_decoders import FILTERS
from tests.linear.growing_inputs import (
    JSON_SHAPES,
    JUNK_SHAPES,
    LINE_SHAPES,
    MSGPACK_SHAPES,
    PROPERTY_SHAPES,
    TAG_SHAPES,
    TOML_SHAPES,
)
from tests.linear.grpc_decoders import GRPC
from tests.linear.operator_decoders import OPERATOR
from tests.linear.stored_decoders import STORED
from tests.support.config_text import parse_config, parse_name_server_config
from tests.support.frames import decode_frame

DECODERS = [
    Decoder("decode_json", decode_json, JSON_SHAPES),
    Decoder("decode_frame of JSON", json_frame, JSON_SHAPES),
    Decoder(
        "list of a backup",
        lambda data: BackupIndex.decode("b", data, "a file"),
        [
            *JSON_SHAPES,
            (
                b'{"version":1,"replicas":[{"group":"g","node":"n","commit_index":1,"time_ms":1,"files":[',
                b'{"name":"a/b","size":1,"sha256":"%b"},' % (b"0" * 64),
                b"]}]}",
            ),
        ],
    ),
    Decoder("decode_frame", both(decode_frame, lambda d: decode_header(1, d, b"")), JUNK_SHAPES),
    Decoder(
        "decode_frame of binary fields",
        binary_ext,
        [
            (b"", b"\x00\x01a\x00\x00\x00\x01b", b""),
            (b"", b"\x00\x00\x00\x00\x00\x00", b""),
            (b"\x00\x01a\x00\x01\x00\x00", b"b", b""),
            *JUNK_SHAPES,
        ],
    ),
    Decoder(
        "FrameReader.feed of a frame in small chunks",
        lambda data: [fed_in_chunks(n)(one_frame(1, data)) for n in (1, 3, 7)],
        LETTERS,
    ),
    Decoder(
        "FrameReader.feed of a header in small chunks",
        lambda data: fed_in_chunks(1)(whole_frame(b'{"code":1,"opaque":"%b"}' % data, b"")),
        LETTERS,
    ),
    Decoder(
        "FrameReader.feed of many frames",
        lambda data: [fed_in_chunks(n)(data) for n in (5, 33, 1 << 30)],
        [(b"", whole_frame(b'{"code":1,"opaque":2}', b"x"), b"")],
    ),
    Decoder("headers like one before", like_sent, PROPERTY_SHAPES),
    Decoder(
        "fields", ext_fields, [*JSON_SHAPES, *JUNK_SHAPES, (b"", b"9", b""), (b"1.", b"1", b"")]
    ),
    Decoder("header of a message", send_headers, [*PROPERTY_SHAPES, (b"", b"9", b"")]),
    Decoder(
        "properties",
        both(
            decode_properties,
            lambda data: find_property(data, b"KEYS"),
            storable_properties,
            lambda data: with_properties(data, {b"DELAY": b"1", b"REAL_TOPIC": None}),
            staged,
        ),
        PROPERTY_SHAPES,
    ),
    Decoder(
        "body of a batch",
        batch,
        [
            (b"", batched(b"UNIQ_KEY\x01a\x02"), b""),
            (b"", batched(b"UNIQ_KEY\x01a\x02") + batched(b"KEYS\x01a b\x02"), b""),
            (b"", batched(b""), b"\x00"),
            *JUNK_SHAPES,
        ],
    ),
    Decoder("properties in a batch", lambda data: batch(batched(data) * 2), PROPERTY_SHAPES),
    *FILTERS,
    Decoder(
        "receipt handle",
        text(lambda handle: parse_handle(handle, "b")),
        [(b"", b"1 ", b""), (b"1 2 3 4 0 ", b"b", b" 0 0")],
    ),
    Decoder(
        "recall handle",
        text(lambda handle: parse_recall_handle(handle, "t", "b")),
        [(b"", b"AA==", b""), (b"", b"IHYx", b""), (b"djEg", b"IDEg", b"")],
    ),
    Decoder(
        "subscription",
        text(
            lambda text: Subscription.from_json(
                {"topic": "t", "subString": text, "subVersion": text}
            ).as_json()
        ),
        [*TAG_SHAPES, (b"", b"9", b"")],
    ),
    Decoder(
        "heartbeat",
        heartbeat,
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
        locks,
        [
            *JSON_SHAPES,
            (
                b'{"consumerGroup":"g","clientId":"c","mqSet":[',
                b'{"topic":"t","queueId":1},',
                b'{"topic":"t","queueId":2}]}',
            ),
        ],
    ),
    Decoder("group", lambda data: _group_config(request(data)), JSON_SHAPES),
    *OPERATOR,
    Decoder(
        "token", text(read_token), [*LINE_SHAPES, (b"", b"a.", b"5.b"), (b"", b"aaaa", b".5.YWFh")]
    ),
    Decoder(
        "secrets of a cluster", text(parse_cluster_secrets), [*LINE_SHAPES, (b"", b"00", b"\n")]
    ),
    Decoder(
        "account",
        both(partial(unpack_account, "reader-123"), unpack_white_list),
        MSGPACK_SHAPES,
    ),
    Decoder("signed fields", signed, LETTERS),
    Decoder("answer with offsets", relay_to_consumer._offset_table, JSON_SHAPES),
    Decoder(
        "table of topics",
        lambda data: decode_topic_table(data, compressed=False),
        [
            *JSON_SHAPES,
            (b'{"topicConfigTable":{', b'"a":{},', b'"b":{}}}'),
            (b'{"filterServerList":[', b'"a",', b'"b"]}'),
        ],
    ),
    Decoder("members of a registration", members_registered, [(b"", b"a:1;", b"")]),
    Decoder(
        "compressed table of topics",
        registration,
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
        lambda data: both(
            lambda packed: decode_topic_table(packed, compressed=True),
            lambda packed: decompressed(packed, 1),
        )(zlib.compress(data)),
        JUNK_SHAPES,
    ),
    Decoder("version of a table of topics", decode_data_version, JSON_SHAPES),
    Decoder("forwarded request", forwarded, JSON_SHAPES),
    Decoder("hold of a client", hold, [*LETTERS, (b"", b"1", b"")]),
    Decoder("features of a peer", text(unpack_features), [*LETTERS, (b"", b"state-proof,", b"")]),
    Decoder("greeting of a peer", greeting, [*LETTERS, (b"", b"1", b":1"), (b"a.b:", b"1", b"")]),
    Decoder("parts of a message over HTTP", counted_parts, JSON_SHAPES),
    Decoder(
        "message over HTTP",
        produced,
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
        route,
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
        lambda data: pulled(records(letters(data), b"KEYS\x01a b\x02")),
        LETTERS,
    ),
    Decoder(
        "a pulled message's properties",
        lambda data: pulled(records([b""], data)),
        PROPERTY_SHAPES,
    ),
    Decoder(
        "addresses",
        both(
            text(parse_name_servers),
            text(Endpoint.parse),
            text(lambda text: parse_member(text, text, text)),
        ),
        LINE_SHAPES,
    ),
    Decoder(
        "files of settings",
        both(
            text(lambda text: parse_config(text, "/")),
            text(lambda text: parse_name_server_config(text, "/")),
        ),
        TOML_SHAPES,
    ),
    Decoder("message of a peer", peer, [*MSGPACK_SHAPES, *JUNK_SHAPES]),
    Decoder("entries of a peer", append, LETTERS),
    Decoder(
        "what members hold",
        lambda data: peer(msgpack.packb([6, 1, 1, 1, msgpack.packb([["n0", 1, 1]] * len(data))])),
        LETTERS,
    ),
    Decoder(
        "frames of a peer",
        both(websocket(1), websocket(7), websocket(50_000)),
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
    *GRPC,
    *STORED,
]
"""All of them."""

ELSEWHERE: dict[str, str] = {
    "broker.bench.jobs.decode_job": "reads what the command's own processes say to each other",
    "broker.client.route.route_lookup.RouteLookup._read": "reads with decode_route",
    "broker.delivery.message_reader.Log.read": "what reads a log, and no decoder",
    "broker.remoting.protocol.header_templates.NoTemplate.read": "counts, and reads nothing",
    "store.log.log_reader.LogReader.read_into": "reads bytes, and decodes none",
}
"""Functions that are named like decoders but are none, and why."""
