"""The check shares reader and layouts with the product, but not the code that builds its files."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from store.message import record, scheduled_topics
from store.message.batch import QueueRun
from store.message.scheduled_topics import SCHEDULE_TOPIC, with_deliver_times
from store.verify import Finding, FindingKind, verify_replica
from tests.store.sample_replica import STORED_MS, Replica, message
from tests.store.small_logs import simulated
from tests.support.imports import ROOT, imports_of, statements

READERS = {
    "array",
    "decode_batch",
    "decode_checkpoint",
    "decode_format",
    "decode_machine_state",
    "decode_manifest",
    "decode_record",
    "decode_slot",
    "decode_tails",
    "find_property",
    "integer",
    "parse_segment_name",
    "read_header",
    "read_segment",
    "read_until_unreadable",
    "segment_name",
    "segment_start",
    "slot_owner",
    "unpack_evidence",
    "unpack_reports",
    "unpack_seal",
}
"""Functions that read, and the names of files."""

TYPES = {
    "Batch",
    "Bytes",
    "Checkpoint",
    "Cursor",
    "DurableMark",
    "Entry",
    "EntryIndexRow",
    "EntryKind",
    "FileSystem",
    "HardState",
    "Hole",
    "HoleReason",
    "Identity",
    "IndexFile",
    "LogReader",
    "MachineState",
    "Manifest",
    "ReadableFile",
    "ReadableFileSystem",
    "SavedEvidence",
    "SegmentFiles",
    "Tail",
    "Window",
}
"""What the layouts say, as values, and the one reader."""

CANONICAL = (
    "a record has one encoding, and bytes are compared with that of the values read from them"
)
SHARED = {
    "encode_checkpoint": CANONICAL,
    "encode_format": CANONICAL,
    "encode_machine_state": CANONICAL,
    "encode_slot": CANONICAL,
    "pack_evidence": CANONICAL,
    "chain_crc": "the formula of the chain, as decode_entry checks it",
    "digests_of": "the definition of the digests that the log holds; the state itself is replayed",
    "judge": "the rule which of the digests in the log are right",
    "file_name": "the rule which topics a ConsumeQueue can be named after",
}
"""What builders use too, with the reason why the check may."""


@cache
def imported_names() -> dict[str, set[str]]:
    """By file of the check: the names that it imports from the rest of the store.

    Errors do not count, nor do constants: layouts, names of files and limits.
    """
    found = {}
    for file in imports_of("store"):
        if not file.startswith("store/verify/"):
            continue
        names: set[str] = set()
        for node in statements(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Import):
                whole = [one.name for one in node.names if one.name.startswith("store")]
                assert not whole, f"{file} imports whole modules"
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                of_store = node.module.startswith("store.") and node.module != "store.errors"
                if of_store and not node.module.startswith("store.verify"):
                    names |= {one.name for one in node.names if not one.name.isupper()}
        found[file] = names
    return found


def test_the_check_uses_readers_and_layouts_and_no_builders() -> None:
    for file, names in imported_names().items():
        assert not names - READERS - TYPES - set(SHARED), file


def test_nothing_is_allowed_that_no_check_uses() -> None:
    used = set().union(*imported_names().values())
    assert (READERS | TYPES | set(SHARED)) - used == set()


def findings(runs: list[QueueRun]) -> list[Finding]:
    fs = simulated()
    replica = Replica(fs)
    replica.send(runs)
    replica.checkpoint()
    replica.close()
    return verify_replica(fs, replica.directory).findings


@pytest.mark.parametrize("count", [1, 20])
def test_a_leader_with_another_hash_of_tags_is_found(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "tags_code", len)
    run = QueueRun("orders", 0, 0, [message(number) for number in range(count)])
    assert [one.kind for one in findings([run])] == [FindingKind.BATCH]


@pytest.mark.parametrize("count", [1, 20])
def test_a_leader_with_other_delays_is_found(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_topics, "DELAYS_MS", (7,) * 18)
    messages = [message(number, SCHEDULE_TOPIC) for number in range(count)]
    run = QueueRun(SCHEDULE_TOPIC, 2, 0, with_deliver_times(messages, 2, STORED_MS))
    assert [one.kind for one in findings([run])] == [FindingKind.BATCH]
