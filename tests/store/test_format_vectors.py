"""The bytes in docs/format.md are the bytes that the code reads and writes."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import msgpack
from crc32c import crc32c

from simulator.engine.disk import SimulatedFileSystem
from store.index.block_seals import Seal, Tail, extend, unpack_seal
from store.index.key_file import read_header
from store.index.key_index import KeyIndex
from store.index.queue_tails import decode_tails, encode_tails
from store.io.two_slot_file import SLOT_SIZE, decode_slot, encode_slot
from store.log.entry import HEADER_SIZE, EntryKind, build_entry, check_chain, decode_entry, padding
from store.log.entry_row import ROW
from store.message.batch import (
    KEY_ROW,
    QUEUE_ROW,
    QueueRun,
    QueueRunHeader,
    decode_batch,
    encode_batch,
)
from store.message.record import decode_record, key_hash, make_pending_message
from store.state.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from store.state.format_file import Identity, decode_format, encode_format
from store.state.hard_state import DurableMark, HardState
from store.state.machine_state import (
    MachineState,
    QueueLength,
    decode_machine_state,
    encode_machine_state,
)
from store.state.replication_evidence_file import SavedEvidence, pack_evidence, unpack_evidence
from store.state.state_digests import (
    DIGESTS_BYTES,
    PROOF,
    item_digest,
    pack_reports,
    unpack_reports,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"


def read_vectors(text: str) -> dict[str, bytes]:
    """The blocks marked ``hex <name>``, without white space and comments."""
    vectors = {}
    for name, block in re.findall(r"^```hex (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert name not in vectors, f"two vectors are named {name}"
        vectors[name] = bytes.fromhex(re.sub(r"#.*", "", block))
    return vectors


VECTORS = read_vectors(DOCUMENT.read_text(encoding="utf-8"))


def test_the_format_file_is_as_documented() -> None:
    identity = Identity("broker-a", "n0", 268435456)
    assert decode_format(VECTORS["format-file"], "format") == identity
    assert encode_format(identity) == VECTORS["format-file"]


def test_a_proof_and_the_digest_of_an_item_are_as_documented() -> None:
    item = msgpack.unpackb(VECTORS["state-item"])
    assert item_digest(item).to_bytes(8, "big") == VECTORS["state-item-digest"]
    ((name, point, reports),) = msgpack.unpackb(VECTORS["proof"])
    assert (name, point) == (PROOF, 41)
    assert unpack_reports(reports) == {"n0": bytes(DIGESTS_BYTES), "n1": b""}
    assert msgpack.packb([[PROOF, 41, pack_reports(unpack_reports(reports))]]) == VECTORS["proof"]


def test_padding_is_as_documented() -> None:
    assert padding(299) == VECTORS["padding"]


def test_the_first_entry_is_as_documented() -> None:
    entry = decode_entry(VECTORS["entry-first"])
    check_chain(entry, 0)
    assert (entry.kind, entry.index, entry.term, entry.position) == (EntryKind.DATA, 0, 1, 0)
    assert bytes(entry.body) == b"Hello"
    assert build_entry(EntryKind.DATA, 0, 1, 0, 0, [b"Hello"]) == entry


def test_the_second_entry_is_chained_to_the_first_as_documented() -> None:
    first = decode_entry(VECTORS["entry-first"])
    second = decode_entry(VECTORS["entry-second"])
    check_chain(second, first.chain_crc)
    assert build_entry(EntryKind.NO_OP, 1, 2, first.end, first.chain_crc, []) == second


def test_a_row_of_the_entry_index_is_as_documented() -> None:
    first = decode_entry(VECTORS["entry-first"])
    assert ROW.unpack(VECTORS["index-row"]) == (1, 0, first.size, 0, 1)


def test_a_slot_with_a_vote_is_as_documented() -> None:
    slot = VECTORS["vote-slot"].ljust(SLOT_SIZE, b"\0")
    decoded = decode_slot(slot)
    assert decoded is not None
    assert decoded[0] == 7
    assert HardState.unpack(decoded[1], "vote") == HardState(5, "n1")
    assert encode_slot(7, HardState(5, "n1").pack()) == slot


def test_a_slot_with_a_mark_is_as_documented() -> None:
    second = decode_entry(VECTORS["entry-second"])
    mark = DurableMark(index=1, position=second.end, chain_crc=second.chain_crc, commit_index=0)
    slot = VECTORS["mark-slot"].ljust(SLOT_SIZE, b"\0")
    decoded = decode_slot(slot)
    assert decoded is not None
    assert DurableMark.unpack(decoded[1], "mark") == mark
    assert encode_slot(3, mark.pack()) == slot


def test_a_slot_with_what_members_hold_is_as_documented() -> None:
    slot = VECTORS["held-slot"].ljust(SLOT_SIZE, b"\0")
    decoded = decode_slot(slot)
    assert decoded is not None
    held = (SavedEvidence("n0", 4, 9), SavedEvidence("n1", 5, 7))
    assert unpack_evidence(decoded[1], "held") == held
    assert encode_slot(2, pack_evidence(held)) == slot


def test_a_checkpoint_is_as_documented() -> None:
    second = decode_entry(VECTORS["entry-second"])
    checkpoint = Checkpoint(
        index=1,
        end_position=second.end,
        chain_crc=second.chain_crc,
        term=2,
        term_starts=((1, 0), (2, 1)),
        commit_index=1,
        state=b"\x01\x02",
    )
    assert decode_checkpoint(VECTORS["checkpoint"], "checkpoint") == checkpoint
    assert encode_checkpoint(checkpoint) == VECTORS["checkpoint"]


def test_the_state_of_a_checkpoint_is_as_documented() -> None:
    state = MachineState(
        broker=b"\x01\x02",
        queues=[QueueLength("TopicTest", 3, 7, 8)],
        segment_times={0: 1700000000001},
        expired_position=0,
        applied_end=HEADER_SIZE + len(VECTORS["batch"]),
    )
    assert decode_machine_state(VECTORS["checkpoint-state"]) == state
    assert encode_machine_state(state) == VECTORS["checkpoint-state"]


def test_the_body_of_a_data_entry_is_as_documented() -> None:
    message = make_pending_message(
        "TopicTest",
        b"Hello RocketMQ",
        b"TAGS\x01TagA\x02KEYS\x01k1\x02",
        born_timestamp=1700000000000,
        born_host=bytes((10, 0, 0, 2)) + (54321).to_bytes(4, "big"),
    )
    runs = [QueueRun("TopicTest", 3, 7, [message])]
    host = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
    assert b"".join(encode_batch(0, 1700000000001, host, runs, b"")) == VECTORS["batch"]


def test_the_documented_body_is_read() -> None:
    batch = decode_batch(VECTORS["batch"])
    assert batch.runs == [QueueRunHeader("TopicTest", 3, 7, 1, 0)]
    record = decode_record(batch.records)
    assert (record.topic, record.body) == ("TopicTest", b"Hello RocketMQ")
    assert record.property_map == {"TAGS": "TagA", "KEYS": "k1"}
    assert (record.queue_id, record.queue_offset, record.position) == (3, 7, HEADER_SIZE)
    assert KEY_ROW.unpack(batch.key_rows) == (key_hash("TopicTest", b"k1"), 48, 1700000000)


def test_a_row_of_a_queue_is_as_documented() -> None:
    assert decode_batch(VECTORS["batch"]).rows == VECTORS["queue-row"]
    assert QUEUE_ROW.unpack(VECTORS["queue-row"]) == (48, 132, 2598919)


def test_a_file_of_the_key_index_is_as_documented() -> None:
    fs = SimulatedFileSystem(Random(1))
    index = KeyIndex(fs, "/keyindex")
    index.append(decode_batch(VECTORS["batch"]).key_rows)
    flush = index.begin_flush()
    assert flush is not None
    flush.run()
    path = f"/keyindex/{HEADER_SIZE:020d}"
    assert fs.visible_bytes(path) == VECTORS["key-file"]
    assert read_header(fs, path).last_position == HEADER_SIZE


def test_a_seal_and_the_tails_of_queues_are_as_documented() -> None:
    row = VECTORS["queue-row"]
    seal = Seal(HEADER_SIZE, crc32c(row))
    assert seal.pack() == VECTORS["queue-seal"]
    assert unpack_seal(VECTORS["queue-seal"]) == seal
    tail, seals = extend(Tail(7, HEADER_SIZE), row, 300_000)
    assert (tail, seals) == (Tail(8, *seal), [])
    assert encode_tails([("TopicTest", 3, tail)]) == VECTORS["queue-tails"]
    assert decode_tails(VECTORS["queue-tails"], "tails") == {("TopicTest", 3): tail}
