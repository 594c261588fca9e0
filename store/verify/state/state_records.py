"""Reads the records of ``state/`` that a node overwrites, and checks its format file."""

from __future__ import annotations

import re
from contextlib import suppress

import msgpack

from store.errors import DamagedError
from store.field_checks import U32_MAX, array, integer
from store.io.filesystem import ReadableFileSystem
from store.io.two_slot_file import SLOT_HEADER, SLOT_SIZE, decode_slot, encode_slot
from store.log.entry import HEADER_SIZE
from store.state.format_file import Identity, encode_format
from store.state.hard_state import DurableMark, HardState
from store.state.replication_evidence_file import FORGET, HELD_NAME, pack_evidence, unpack_evidence
from store.verify.files.audit_files import listed_names
from store.verify.files.first_difference import first_difference
from store.verify.files.small_files import read_head, read_small
from store.verify.findings import FindingKind, FindingLog
from store.verify.state.state_files import StateFiles
from store.verify.state.two_slot_check import read_slots

NODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names that nodes can have."""


def read_vote_floor(fs: ReadableFileSystem, path: str, log: FindingLog) -> int:
    """The vote floor in ``state/floor``; -1 without one."""
    expected = "the entry that must be here again"
    try:
        data = read_head(fs, path, SLOT_SIZE + 1)
        slot = decode_slot(data)
        (floor,) = array(msgpack.unpackb(b"" if slot is None else slot[1]), 1)
        if slot is not None and data != encode_slot(slot[0], msgpack.packb([integer(floor)])):
            raise ValueError("more than a record has")
        return integer(floor)
    except FileNotFoundError:
        pass
    except DamagedError as error:
        log.add_damage(FindingKind.FORMAT, error, expected)
    except (ValueError, msgpack.UnpackException) as error:
        log.add(FindingKind.FORMAT, path, 0, expected, f"another record: {error}")
    return -1


def read_vote(fs: ReadableFileSystem, state: StateFiles, log: FindingLog) -> None:
    kind, path, expected = FindingKind.VOTE, state.vote_path, "term and vote"
    payload = read_slots(fs, path, state.identity.owner, kind, log)
    if payload is None:
        return
    try:
        found = HardState.unpack(payload, path)
    except DamagedError as error:
        log.add_damage(kind, error, expected)
        return
    in_no_term = found.vote and found.term == 0
    if found.term < 0 or in_no_term or not (found.vote == "" or NODE.fullmatch(found.vote)):
        log.add(kind, path, 0, expected, found)
    else:
        check_encoding(payload, found.pack(), kind, path, log)
        state.hard_state = found


def read_mark(fs: ReadableFileSystem, state: StateFiles, log: FindingLog) -> None:
    kind, path, expected = FindingKind.MARK, state.mark_path, "the mark of a log"
    payload = read_slots(fs, path, state.identity.owner, kind, log)
    if payload is None:
        return
    try:
        mark = DurableMark.unpack(payload, path)
    except DamagedError as error:
        log.add_damage(kind, error, expected)
        return
    if is_possible(mark):
        check_encoding(payload, mark.pack(), kind, path, log)
        state.mark = mark
    else:
        log.add(kind, path, 0, expected, mark)


def is_possible(mark: DurableMark) -> bool:
    """Whether a log can have this mark. An entry has at least 48 bytes."""
    return (
        min(mark.index, mark.commit_index) >= -1
        and min(mark.chain_crc, mark.first_index) >= 0
        and mark.chain_crc <= U32_MAX
        and mark.position >= HEADER_SIZE * (mark.index + 1)
        and mark.first_position >= HEADER_SIZE * mark.first_index
        and (mark.first_index > 0 or mark.first_position == 0)
        and (mark.index >= 0 or (mark.position, mark.chain_crc, mark.commit_index) == (0, 0, -1))
    )


def check_encoding(
    found: bytes, right: bytes, kind: FindingKind, path: str, log: FindingLog
) -> None:
    """Checks that a record has the one encoding that a node writes."""
    if found != right:
        byte = SLOT_HEADER.size + first_difference(found, right)
        expected, there = "the encoding that a node writes", "another one, or more fields"
        log.add(kind, path, byte, expected, there)


def check_format(fs: ReadableFileSystem, path: str, identity: Identity, log: FindingLog) -> None:
    """Checks that the format file has the lines that a node writes, and no others."""
    with suppress(DamagedError, FileNotFoundError, ValueError):
        data = read_small(fs, path)
        right = encode_format(identity)
        if data != right:
            expected = f"the lines of {identity.owner} alone"
            byte = first_difference(data, right)
            log.add(FindingKind.FORMAT, path, byte, expected, "other lines")


def read_evidence(fs: ReadableFileSystem, state: StateFiles, log: FindingLog) -> None:
    """Reads ``state/held``. It may be absent."""
    kind, path, expected = FindingKind.HELD, state.evidence_path, "what other members hold"
    if not fs.exists(path) and HELD_NAME not in listed_names(fs, path.rpartition("/")[0]):
        return
    payload = read_slots(fs, path, state.identity.owner, kind, log, advice=FORGET)
    if payload is None:
        return
    try:
        held = unpack_evidence(payload, path)
    except DamagedError as error:
        log.add_damage(kind, error, expected, FORGET)
        return
    check_encoding(payload, pack_evidence(held), kind, path, log)
    state.held = held
    nodes = [each.node for each in held]
    wrong = [node for node in nodes if not NODE.fullmatch(node)]
    if wrong:
        log.add(kind, path, 20, expected, f"a member of the name {wrong[0]!r:.80}", FORGET)
    if len(set(nodes)) < len(nodes):
        found = f"two numbers of one member: {', '.join(sorted(nodes))}"
        log.add(kind, path, 0, expected, found, FORGET)
