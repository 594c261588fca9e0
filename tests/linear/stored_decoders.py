"""Decoders of files, and how each is fed."""

from __future__ import annotations

from broker.ingest.stored_request import stored_request
from broker.state.broker_state import BrokerState
from broker.state.commands import decode_commands
from broker.state.pop_queues import pack_runs, unpack_runs, unpack_waiting
from store.index.block_seals import unpack_seal
from store.index.queue_tails import decode_tails, seal_payload
from store.io.two_slot_file import decode_slot, encode_slot
from store.log.entry import HEADER_SIZE, EntryKind, build_entry, decode_entries, decode_entry
from store.log.layout import parse_segment_name
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import decode_record
from store.quoting import quoted, shortened
from store.state.checkpoint import (
    decode_checkpoint,
)
from store.state.format_file import decode_format
from store.state.hard_state import DurableMark, HardState
from store.state.machine_state import MachineState, decode_machine_state
from store.state.replication_evidence_file import unpack_evidence
from store.state.snapshot_manifest import decode_manifest
from store.state.state_digests import digests_of, unpack_reports
from store.verify.findings import FindingLog
from store.verify.log.batch_columns import TopicNumbers, read_columns
from store.verify.log.log_commands import unpack_commands
from store.verify.replay.broker_state_check import _decode
from store.verify.state.broker_state import BrokerTables
from store.verify.state.pop_state import PopTables
from store.verify.state.stray_files import _read_record
from tests.linear.decoder import LETTERS, Decoder
from tests.linear.feeding import (
    all_records,
    batch,
    batch_body,
    batched,
    both,
    chain,
    checkpoint,
    letters,
    records,
    text,
)
from tests.linear.growing_inputs import (
    JSON_SHAPES,
    JUNK_SHAPES,
    MSGPACK_SHAPES,
)

_FILE = "a file"


def by_columns(messages: list[bytes]) -> object:
    """All messages in one entry, as the check reads them."""
    body = batch_body(messages)
    entry = build_entry(EntryKind.DATA, 0, 1, 0, 0, [body])
    return read_columns(entry.data, 0, [entry], TopicNumbers())


def sent_again(data: bytes) -> object:
    """A batch with these messages, and the entry of another one: it ends with the first message."""
    messages = batch(data)
    stored = [*messages[:-1], messages[0]]
    body = encode_batch(0, 0, bytes(8), [QueueRun("topic", 0, 0, stored)], b"")
    return stored_request(b"".join(map(bytes, body)), HEADER_SIZE, "topic", messages, 0)


_ALIKE, _OTHER = batched(b"UNIQ_KEY\x01a\x02"), batched(b"UNIQ_KEY\x01a\x02TAGS\x01b\x02")

STORED = [
    Decoder(
        "entries",
        lambda data: both(decode_entries, decode_entry)(chain(letters(data))),
        LETTERS,
    ),
    Decoder("broken entries", both(decode_entries, decode_entry), JUNK_SHAPES),
    Decoder("batch", lambda data: decode_batch(batch_body(letters(data))), LETTERS),
    Decoder("broken batch", decode_batch, JUNK_SHAPES),
    Decoder("records", lambda data: all_records(records(letters(data))), LETTERS),
    Decoder(
        "a batch that was sent before, or not",
        sent_again,
        [(b"", _ALIKE, _OTHER), (b"", _ALIKE * 3 + _OTHER, _ALIKE * 4 + _OTHER)],
    ),
    Decoder("broken records", both(all_records, decode_record), JUNK_SHAPES),
    Decoder(
        "commands",
        both(decode_commands, unpack_commands),
        [*MSGPACK_SHAPES, (b"\xdd\x00\x00\x01\xf4", b"\x95\xa6offset\xa1g\xa1t\x00\x01", b"")],
    ),
    Decoder(
        "state of a broker",
        both(
            BrokerState.from_bytes,
            BrokerTables.decode,
            lambda data: _decode(data, _FILE, 1, FindingLog("n0")),
        ),
        MSGPACK_SHAPES,
    ),
    Decoder("batches by columns", lambda data: by_columns(letters(data)), LETTERS),
    Decoder("state of a machine", decode_machine_state, MSGPACK_SHAPES),
    Decoder(
        "offsets of POP",
        both(
            lambda data: list(unpack_runs(data)),
            lambda data: list(unpack_waiting(data)),
            lambda data: PopTables.decode([1, [["g", "t", 0, 1, [[1] * 5] * len(data)]]]),
        ),
        [(b"", pack_runs([7]), b"")],
    ),
    Decoder(
        "what replicas say of their states",
        both(unpack_reports, lambda data: digests_of(MachineState(data, [], {}, 0, 0))),
        MSGPACK_SHAPES,
    ),
    Decoder(
        "checkpoint",
        both(checkpoint, lambda data: decode_checkpoint(data, _FILE)),
        [*MSGPACK_SHAPES, *JUNK_SHAPES],
    ),
    Decoder(
        "small files",
        both(
            decode_slot,
            lambda data: decode_slot(encode_slot(1, data)),
            lambda data: _read_record(encode_slot(1, data), 3),
            lambda data: HardState.unpack(data, _FILE),
            lambda data: DurableMark.unpack(data, _FILE),
            lambda data: unpack_evidence(data, _FILE),
            lambda data: decode_format(data, _FILE),
            text(parse_segment_name),
        ),
        [
            *JUNK_SHAPES,
            *MSGPACK_SHAPES,
            (b"dledger store ", b"1", b""),
            (b"dledger store 1\n", b"a b\n", b""),
        ],
    ),
    Decoder(
        "checksums of queues",
        both(unpack_seal, lambda data: decode_tails(seal_payload(data), _FILE)),
        [
            *MSGPACK_SHAPES,
            *JUNK_SHAPES,
            (b"\xdd\x00\x00\x01\xf4", b"\x95\xa1t\x00\x01\x00\x01", b""),
        ],
    ),
    Decoder("manifest", lambda data: decode_manifest(data, _FILE), JSON_SHAPES),
    Decoder(
        "what is shown of a value",
        both(quoted, shortened, lambda data: quoted([data] * 9), lambda data: quoted(list(data))),
        JUNK_SHAPES,
    ),
]
"""Decoders of the log and of small files, and of texts that errors show."""
