"""Decoders of the gRPC wire and of the traces of clients, and how each is fed."""

from __future__ import annotations

from broker.admin.message_trace import decode_trace
from broker.grpc.forwarding import _unpack, _unpack_answers
from broker.grpc.remote_client import parse_transaction_id
from tests.linear.decoder import LETTERS, Decoder
from tests.linear.feeding import text
from tests.linear.growing_inputs import JSON_SHAPES, JUNK_SHAPES

_CALL = b'{"method":"m","client":"c","seconds":1,"metadata":{'

GRPC = [
    Decoder(
        "forwarded gRPC call",
        text(_unpack),
        [*JSON_SHAPES, (_CALL + b'"a":"', b"b", b'"}}'), (_CALL, b'"a":"b",', b'"c":"d"}}')],
    ),
    Decoder(
        "answers to a forwarded gRPC call",
        _unpack_answers,
        [*JUNK_SHAPES, (b"", b"\0\0\0\1a", b""), (b"", b"\0\0\0\0", b"")],
    ),
    Decoder(
        "id of a transaction over gRPC",
        text(parse_transaction_id),
        [*LETTERS, (b"0" * 32, b"0", b""), (b"0" * 32, b"", b"")],
    ),
    Decoder(
        "trace of messages",
        decode_trace,
        [*JUNK_SHAPES, (b"", b"Pub\x01", b"\x02"), (b"", b"SubAfter\x01r\x01i\x02", b"")],
    ),
]
