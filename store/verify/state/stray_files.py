"""The check of names in a replica's directory, of empty files, and of segments."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing

import msgpack

from store.errors import DamagedError, UnreadableError
from store.field_checks import array, integer
from store.index.queue_tails import TAILS_NAME
from store.io.atomic_file import TEMPORARY_SUFFIX
from store.io.filesystem import ReadableFileSystem
from store.io.two_slot_file import SLOT_SIZE, decode_slot, encode_slot
from store.log.entry import HEADER, HEADER_SIZE, EntryKind
from store.log.layout import parse_segment_name, segment_start
from store.log.repair_note import PREFIX as PUTBACK
from store.recovery.snapshot_install import (
    CHECKPOINT_NAME,
    COMPLETE_NAME,
    FLOOR_NAME,
    PLAN_NAME,
    REBUILD_NAME,
    REFILL_NAME,
)
from store.state.checkpoint import NAME_PREFIX
from store.state.format_file import FORMAT_NAME
from store.state.hard_state import MARK_NAME, VOTE_NAME
from store.state.replication_evidence_file import HELD_NAME
from store.state.snapshot_manifest import MANIFEST_NAME
from store.verify.files.audit_files import listed_names
from store.verify.files.directory_listing import Listing, names_in
from store.verify.files.small_files import read_checkpoint, read_head
from store.verify.findings import FindingKind, FindingLog
from store.verify.state.state_files import StateFiles

STRAY = "it is none of a replica's files: find out where it comes from, and take it away"
REFILL = "remove the directory refill of the stopped node: it is gathered again"
LOCK_NAME = "lock"
_CHECKPOINT = re.compile(rf"{NAME_PREFIX}\d{{20}}")
_PUTBACK = re.compile(rf"{PUTBACK}\d{{20}}-\d+")
_KINDS = {
    "commitlog": FindingKind.SEGMENT,
    "index": FindingKind.ENTRY_INDEX,
    "keyindex": FindingKind.KEY_INDEX,
}
"""Directories whose files are all named by a number."""
_EVERYWHERE = frozenset({"state", "consumequeue", *_KINDS})
_STATE = frozenset({FORMAT_NAME, VOTE_NAME, MARK_NAME, TAILS_NAME})
_STATE_OF_NODES = frozenset({HELD_NAME, FLOOR_NAME, REBUILD_NAME})


def check_names(
    fs: ReadableFileSystem, directory: str, listing: Listing, state: StateFiles, log: FindingLog
) -> None:
    """Reports names that no replica has. ``*.tmp`` is ignored.

    A snapshot has no files of a running node. A node's own directory may also hold other files,
    such as settings and logs of its operator.
    """
    names = names_in(fs, directory, listing)
    is_node = LOCK_NAME in names or state.manifest is None
    if not is_node:
        allowed = _EVERYWHERE | {MANIFEST_NAME}
        _report(log, FindingKind.FORMAT, directory, names, allowed.__contains__)
    small = names_in(fs, f"{directory}/state", listing)
    in_state = _STATE | (_STATE_OF_NODES if is_node else frozenset())
    _report(
        log,
        FindingKind.FORMAT,
        f"{directory}/state",
        small,
        lambda name: (
            name in in_state
            or _CHECKPOINT.fullmatch(name) is not None
            or (is_node and _PUTBACK.fullmatch(name) is not None)
        ),
    )
    for name, kind in _KINDS.items():
        path = f"{directory}/{name}"
        found = names_in(fs, path, listing)
        _report(log, kind, path, found, lambda each: parse_segment_name(each) is not None)
    for name in sorted(small):
        if name == REBUILD_NAME or _PUTBACK.fullmatch(name):
            _check_empty(fs, f"{directory}/state/{name}", log)
    if LOCK_NAME in names:
        _check_empty(fs, f"{directory}/{LOCK_NAME}", log)
    if REFILL_NAME in names:
        _check_refill(fs, f"{directory}/{REFILL_NAME}", log)


def _report(
    log: FindingLog,
    kind: FindingKind,
    directory: str,
    names: frozenset[str],
    is_known: Callable[[str], bool],
) -> None:
    for name in sorted(names):
        if not is_known(name) and not name.endswith(TEMPORARY_SUFFIX):
            log.add(
                kind,
                f"{directory}/{name}",
                0,
                "only names that a replica has",
                "another name",
                STRAY,
            )


def _check_empty(fs: ReadableFileSystem, path: str, log: FindingLog) -> None:
    expected = "an empty file"
    try:
        found = read_head(fs, path, 1)
    except FileNotFoundError:
        return
    except DamagedError as error:
        log.add_damage(FindingKind.FORMAT, error, expected)
        return
    if found:
        log.add(FindingKind.FORMAT, path, 0, expected, "bytes", STRAY)


def _check_refill(fs: ReadableFileSystem, directory: str, log: FindingLog) -> None:
    """Checks plan and checkpoint of a refill. Its installation checks the segments."""
    known = {PLAN_NAME, CHECKPOINT_NAME, COMPLETE_NAME, "commitlog"}
    names = listed_names(fs, directory)
    _report(log, FindingKind.FORMAT, directory, names, known.__contains__)
    planned = []
    for name, length in ((PLAN_NAME, 3), (COMPLETE_NAME, 4)):
        path = f"{directory}/{name}"
        try:
            planned.append(_read_record(read_head(fs, path, SLOT_SIZE + 1), length)[2])
        except FileNotFoundError:
            continue
        except (ValueError, DamagedError, msgpack.UnpackException) as error:
            log.add(
                FindingKind.FORMAT,
                path,
                0,
                "the plan of a refill",
                getattr(error, "what", error),
                REFILL,
                unread=isinstance(error, UnreadableError),
            )
    path = f"{directory}/{CHECKPOINT_NAME}"
    try:
        index = read_checkpoint(fs, path).index
    except FileNotFoundError:
        return
    except DamagedError as error:
        log.add_damage(FindingKind.CHECKPOINT, error, "a checkpoint", REFILL)
        return
    if any(index != each for each in planned):
        expected = f"the checkpoint of entry {planned[0]}, as the plan says"
        found = f"that of {index}"
        log.add(FindingKind.CHECKPOINT, path, 16, expected, found, REFILL)


def _read_record(data: bytes, length: int) -> list[int]:
    slot = decode_slot(data)
    if slot is None or encode_slot(*slot) != data:
        raise ValueError("no whole slot")
    return [integer(each, -1) for each in array(msgpack.unpackb(slot[1]), length)]


def check_segment_files(
    fs: ReadableFileSystem, directory: str, state: StateFiles, log: FindingLog, names: Sequence[str]
) -> None:
    """Checks names and sizes of segments."""
    size = state.identity.segment_size
    for name in names:
        start = parse_segment_name(name)
        path = f"{directory}/{name}"
        if start is None:
            continue
        if start % size:
            expected = f"a name that is a multiple of {size}"
            log.add(FindingKind.SEGMENT, path, 0, expected, start)
        elif start + size > state.mark.first_position:
            with closing(fs.open(path, writable=False)) as file:
                found = file.size()
            if found > size:
                expected = f"at most {size} bytes"
                log.add(FindingKind.SEGMENT, path, size, expected, f"{found} bytes")


def check_segments_behind(
    fs: ReadableFileSystem,
    directory: str,
    listing: Listing,
    state: StateFiles,
    log: FindingLog,
    *,
    end: int,
) -> None:
    """Reports segments behind ``end``, the end of the log, that no interrupted write leaves.

    A snapshot has no segment there. A node has the next segment ready, and may have torn bytes in
    it.
    """
    size = state.identity.segment_size
    starts = [parse_segment_name(name) for name in sorted(names_in(fs, directory, listing))]
    expected_start = segment_start(end, size) + size
    for start in starts:
        if start is None or start % size or start < max(end, 1):
            continue
        path = f"{directory}/{start:020d}"
        found = ""
        if state.manifest is not None and not state.has_lock:
            found = "a segment behind the end of the snapshot"
        elif start > expected_start:
            found = "a segment behind a gap"
        else:
            try:
                head = read_head(fs, path, HEADER_SIZE)
            except (DamagedError, FileNotFoundError):
                continue  # reported where the log is read
            if len(head) == HEADER_SIZE:
                magic, _size, index, _term, position, *_rest = HEADER.unpack(head)
                if magic in tuple(EntryKind) and position != start:
                    found = f"the segment of entry {index} at {position}"
        if found:
            expected = f"no entry of another place behind the end of the log, at {end}"
            log.add(FindingKind.SEGMENT, path, 0, expected, found, STRAY)
        expected_start = max(expected_start, start + size)
