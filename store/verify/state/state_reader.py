"""Reads the small files of a stopped replica. Unlike a start, it repairs nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

from store.errors import DamagedError, DataFormatError, UnreadableError
from store.io.atomic_file import TEMPORARY_SUFFIX
from store.io.filesystem import ReadableFileSystem
from store.recovery.snapshot_install import FLOOR_NAME, REBUILD_NAME
from store.state.checkpoint import NAME_PREFIX, Checkpoint
from store.state.format_file import (
    FORMAT_NAME,
    FORMAT_VERSION,
    TITLE,
    Identity,
    decode_format,
)
from store.state.hard_state import MARK_NAME, VOTE_NAME
from store.state.machine_state import MachineState, decode_machine_state
from store.state.replication_evidence_file import HELD_NAME
from store.state.snapshot_manifest import CRC_NAME, MANIFEST_NAME, decode_manifest
from store.verify.files.audit_files import DANGLING, listed_names, may_be_right, reason
from store.verify.files.small_files import read_checkpoint, read_small
from store.verify.findings import INCOMPLETE, FindingKind, FindingLog
from store.verify.state.checkpoint_digest import StateDigest
from store.verify.state.queue_tails_check import read_queue_tails
from store.verify.state.state_agreement import check_agreement
from store.verify.state.state_files import SavedCheckpoint, StateFiles
from store.verify.state.state_records import (
    check_format,
    read_evidence,
    read_mark,
    read_vote,
    read_vote_floor,
)
from store.verify.state.stray_files import LOCK_NAME

STATE_FILES = (VOTE_NAME, MARK_NAME)
CHECKPOINT = "the next start uses an older checkpoint and reads more of the log; suspect the disk"


def read_identity(fs: ReadableFileSystem, directory: str) -> Identity:
    """The identity in the format file of a replica.

    Raises :class:`~store.errors.DataFormatError` for a directory that is no replica,
    :class:`~store.errors.UnreadableError` for an unknown format, and
    :class:`~store.errors.DamagedError`.
    """
    path = f"{directory}/state/{FORMAT_NAME}"
    data = b""
    try:
        data = read_small(fs, path)
        return decode_format(data, path)
    except FileNotFoundError:
        pass
    except DataFormatError as error:
        _title, _newline, rest = data.partition(b"\n")
        try:
            decode_format(b"%s%d\n%s" % (TITLE.encode(), FORMAT_VERSION, rest), path)
        except DamagedError:
            raise UnreadableError(path, 0, str(error)) from error
        raise DamagedError(path, 0, f"a changed first line: {error}") from error
    if not fs.exists(directory):
        parent, _slash, name = directory.rpartition("/")
        if name in listed_names(fs, parent):
            raise DamagedError(path, 0, f"{directory} is {DANGLING}")
        raise DataFormatError(f"{directory}: there is no such directory")
    if is_replica(fs, directory):
        raise DamagedError(path, 0, "the file is missing, though there is a log")
    raise DataFormatError(
        f"{directory}: not the data of a replica (it has no state/{FORMAT_NAME}); "
        "name a directory <data>/<group>/<node>"
    )


def is_replica(fs: ReadableFileSystem, directory: str) -> bool:
    """Whether a directory without a format file has other files of a replica."""
    if MANIFEST_NAME in listed_names(fs, directory):
        return True
    names = listed_names(fs, f"{directory}/state")
    if any(name in names or f"{name}{TEMPORARY_SUFFIX}" in names for name in STATE_FILES):
        return True
    return bool(listed_names(fs, f"{directory}/commitlog"))


def read_state(
    fs: ReadableFileSystem, directory: str, identity: Identity, log: FindingLog
) -> StateFiles:
    """Reads the small files. Checks each of them, and that they agree."""
    state_directory = f"{directory}/state"
    small = listed_names(fs, state_directory)
    state = StateFiles(
        identity,
        vote_path=f"{state_directory}/{VOTE_NAME}",
        mark_path=f"{state_directory}/{MARK_NAME}",
        manifest_path=f"{directory}/{MANIFEST_NAME}",
        evidence_path=f"{state_directory}/{HELD_NAME}",
        has_lock=LOCK_NAME in listed_names(fs, directory) or fs.exists(f"{directory}/{LOCK_NAME}"),
        rebuilds=REBUILD_NAME in small,
    )
    read_vote(fs, state, log)
    read_mark(fs, state, log)
    read_evidence(fs, state, log)
    check_format(fs, f"{state_directory}/{FORMAT_NAME}", identity, log)
    state.vote_floor = read_vote_floor(fs, f"{state_directory}/{FLOOR_NAME}", log)
    _read_checkpoints(fs, state_directory, state, log)
    state.tails = read_queue_tails(fs, state_directory, log)
    _read_manifest(fs, state, log)
    check_agreement(directory, state, log)
    return state


def _read_checkpoints(
    fs: ReadableFileSystem, directory: str, state: StateFiles, log: FindingLog
) -> None:
    try:
        names = sorted(fs.list_directory(directory))
    except FileNotFoundError:
        names = []  # a missing file is a finding of its own
    except (OSError, ValueError) as error:
        names = []
        why, unread = f"cannot be read: {reason(error)}", may_be_right(error)
        log.add(FindingKind.FORMAT, directory, 0, "a directory", why, unread=unread)
    for name in names:  # a name has the index in 20 digits, so names are in the order of entries
        digits = name.removeprefix(NAME_PREFIX)
        if digits == name or name.endswith(TEMPORARY_SUFFIX):
            continue
        path = f"{directory}/{name}"
        try:
            checkpoint = read_checkpoint(fs, path)
        except FileNotFoundError:
            continue
        except DamagedError as error:
            log.add_damage(FindingKind.CHECKPOINT, error, "a checkpoint", CHECKPOINT)
            continue
        if f"{checkpoint.index:020d}" != digits:
            expected, found = f"the checkpoint of entry {digits}", f"that of {checkpoint.index}"
            log.add(FindingKind.CHECKPOINT, path, 16, expected, found, CHECKPOINT)
            continue
        if state.checkpoints:
            state.checkpoints[-1] = state.checkpoints[-1].without_broker()
        machine = read_machine(path, checkpoint, log)
        digest = StateDigest.of(checkpoint, path)
        state.checkpoints.append(SavedCheckpoint(path, checkpoint, machine, digest))


def read_machine(path: str, checkpoint: Checkpoint, log: FindingLog) -> MachineState | None:
    """The state in a checkpoint, if it can be read. Checks that it ends with the checkpoint."""

    def report(expected: str, found: object) -> None:
        log.add(FindingKind.CHECKPOINT, path, 16, expected, found, first=checkpoint.index)

    try:
        machine = decode_machine_state(checkpoint.state)
    except DataFormatError as error:
        report("the state of a broker", error)
        return None
    committed, starts = checkpoint.commit_index, checkpoint.term_starts
    if committed < checkpoint.index or not _rise(starts, checkpoint.index):
        expected = f"what was known after entry {checkpoint.index}, committed and applied"
        report(expected, f"committed up to {committed}, term starts {list(starts)}")
    end, applied, expired = checkpoint.end_position, machine.applied_end, machine.expired_position
    if applied != end or expired > end:
        expected = f"a state applied up to {end}, with nothing expired behind that"
        report(expected, f"applied up to {applied}, expired up to {expired}")
    return machine


def _rise(starts: Sequence[tuple[int, int]], last_index: int) -> bool:
    """Whether terms and their first entries rise, and none begins behind ``last_index``."""
    indexes = [index for _, index in starts]
    return (
        all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(starts))
        and max(indexes, default=-1) <= last_index
    )


def _read_manifest(fs: ReadableFileSystem, state: StateFiles, log: FindingLog) -> None:
    path = state.manifest_path

    def report(expected: str, found: object) -> None:
        log.add(FindingKind.FORMAT, path, 0, expected, found, INCOMPLETE)

    expected = "the manifest of a snapshot"
    try:
        manifest = decode_manifest(read_small(fs, path), path)
    except FileNotFoundError:
        if not state.has_lock:
            report(f"{expected}, or the lock file of a node's own directory", "neither")
        return
    except DamagedError as error:
        log.add_damage(FindingKind.FORMAT, error, expected, INCOMPLETE)
        return
    except DataFormatError as error:
        report(expected, error)
        return
    more = set(json.loads(read_small(fs, path))) - {each.name for each in fields(manifest)}
    if more != {CRC_NAME}:
        report("the fields of a manifest", f"others: {sorted(more - {CRC_NAME})!r:.200}")
    owner = (state.identity.group, state.identity.node)
    if (manifest.group, manifest.node) != owner:
        report(f"a snapshot of {'/'.join(owner)}", f"{manifest.group}/{manifest.node}")
    state.manifest = manifest
