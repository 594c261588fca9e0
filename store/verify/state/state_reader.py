"""Reading the small files of a stopped replica, without repairing them as a start would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
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
from store.verify.files.audit_files import DANGLING, is_hidden, listed_names, reason
from store.verify.files.small_files import read_checkpoint, read_small
from store.verify.findings import INCOMPLETE, FindingKind, FindingLog
from store.verify.state.checkpoint_digest import StateDigest
from store.verify.state.queue_tails_check import read_queue_tails
from store.verify.state.state_agreement import check_first_index, check_mark, check_snapshot
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
    """Whose data it is.

    Raises :class:`~store.errors.DataFormatError` for a directory that is no replica, and
    :class:`~store.errors.DamagedError`: :class:`~store.errors.UnreadableError` for one in a format
    that this program does not know.
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
    """Whether a directory without a format file still holds what only a replica has."""
    if MANIFEST_NAME in listed_names(fs, directory):
        return True
    names = listed_names(fs, f"{directory}/state")
    if any(name in names or f"{name}{TEMPORARY_SUFFIX}" in names for name in STATE_FILES):
        return True
    return bool(listed_names(fs, f"{directory}/commitlog"))


def read_state(
    fs: ReadableFileSystem, directory: str, identity: Identity, log: FindingLog
) -> StateFiles:
    """Reads all of it, noting what is wrong with each file by itself, and with all together."""
    state = StateFiles(identity)
    state.vote_path = f"{directory}/state/{VOTE_NAME}"
    state.mark_path = f"{directory}/state/{MARK_NAME}"
    state.manifest_path = f"{directory}/{MANIFEST_NAME}"
    owner = identity.owner
    read_vote(fs, state, owner, log)
    read_mark(fs, state, owner, log)
    state.evidence_path = f"{directory}/state/{HELD_NAME}"
    state.has_lock = _has_lock(fs, directory)
    read_evidence(fs, state, owner, log)
    check_format(fs, f"{directory}/state/{FORMAT_NAME}", identity, log)
    state.floor = read_vote_floor(fs, f"{directory}/state/{FLOOR_NAME}", log)
    state.rebuilds = REBUILD_NAME in listed_names(fs, f"{directory}/state")
    _read_checkpoints(fs, f"{directory}/state", state, log)
    state.tails = read_queue_tails(fs, f"{directory}/state", log)
    if state.rebuilds:
        state.machine = None
    _read_manifest(fs, directory, state, log)
    check_mark(state, log)
    check_first_index(directory, state, log)
    if state.manifest is not None:
        if state.manifest.first_index != state.mark.first_index:
            log.add(
                FindingKind.FORMAT,
                state.manifest_path,
                0,
                f"a log that begins with entry {state.mark.first_index}",
                f"entry {state.manifest.first_index}",
                INCOMPLETE,
            )
        if not _has_lock(fs, directory):
            check_snapshot(directory, state, state.manifest, log)
    return state


def _has_lock(fs: ReadableFileSystem, directory: str) -> bool:
    """Whether it is a node's own directory: a snapshot has no lock file."""
    return LOCK_NAME in listed_names(fs, directory) or fs.exists(f"{directory}/{LOCK_NAME}")


def _read_checkpoints(
    fs: ReadableFileSystem, directory: str, state: StateFiles, log: FindingLog
) -> None:
    try:
        names = sorted(fs.list_directory(directory))
    except FileNotFoundError:
        names = []  # told of each file that must be there
    except (OSError, ValueError) as error:
        names = []
        why, hidden = f"cannot be read: {reason(error)}", is_hidden(error)
        log.add(FindingKind.FORMAT, directory, 0, "a directory", why, unread=hidden)
    for name in names:
        digits = name.removeprefix(NAME_PREFIX)
        if digits == name or name.endswith(TEMPORARY_SUFFIX):
            continue
        path = f"{directory}/{name}"
        expected = "a checkpoint"
        try:
            checkpoint = read_checkpoint(fs, path)
        except FileNotFoundError:
            continue
        except DamagedError as error:
            log.add_damage(FindingKind.CHECKPOINT, error, expected, CHECKPOINT)
            continue
        if f"{checkpoint.index:020d}" != digits:
            log.add(
                FindingKind.CHECKPOINT,
                path,
                16,
                f"the checkpoint of entry {digits}",
                f"that of {checkpoint.index}",
                CHECKPOINT,
            )
            continue
        machine = read_machine(path, checkpoint, log)
        state.digests.append(StateDigest.of(checkpoint, path))
        # They come in the order of their indexes: names have them in 20 digits.
        if state.checkpoint is not None:
            older = replace(state.checkpoint, state=b"")
            said = state.machine
            if said is not None:
                said = said._replace(broker=said.broker[:1])
            state.older.append(SavedCheckpoint(state.checkpoint_path, older, said))
        state.checkpoint_path, state.checkpoint, state.machine = path, checkpoint, machine


def read_machine(path: str, checkpoint: Checkpoint, log: FindingLog) -> MachineState | None:
    """What a checkpoint says of the derived files, if that can be read and fits its end."""
    try:
        machine = decode_machine_state(checkpoint.state)
    except DataFormatError as error:
        log.add(
            FindingKind.CHECKPOINT, path, 16, "the state of a broker", error, first=checkpoint.index
        )
        return None
    starts = checkpoint.term_starts
    if checkpoint.commit_index < checkpoint.index or not _rise(starts, checkpoint.index):
        log.add(
            FindingKind.CHECKPOINT,
            path,
            16,
            f"what was known after entry {checkpoint.index}, committed and applied",
            f"committed up to {checkpoint.commit_index}, term starts {list(starts)}",
            first=checkpoint.index,
        )
    end = checkpoint.end_position
    if machine.applied_end != end or machine.expired_position > end:
        log.add(
            FindingKind.CHECKPOINT,
            path,
            16,
            f"a state applied up to {end}, with nothing expired behind that",
            f"applied up to {machine.applied_end}, expired up to {machine.expired_position}",
            first=checkpoint.index,
        )
    return machine


def _rise(starts: Sequence[tuple[int, int]], last_index: int) -> bool:
    """Whether terms and the entries that they begin with rise, up to an entry."""
    indexes = [index for _, index in starts]
    return (
        all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(starts))
        and max(indexes, default=-1) <= last_index
    )


def _read_manifest(
    fs: ReadableFileSystem, directory: str, state: StateFiles, log: FindingLog
) -> None:
    path = state.manifest_path
    expected = "the manifest of a snapshot"
    try:
        manifest = decode_manifest(read_small(fs, path), path)
    except FileNotFoundError:
        if not _has_lock(fs, directory):
            log.add(
                FindingKind.FORMAT,
                path,
                0,
                "the manifest of a snapshot, or the lock file of a node's own directory",
                "neither",
                INCOMPLETE,
            )
        return
    except DamagedError as error:
        log.add_damage(FindingKind.FORMAT, error, expected, INCOMPLETE)
        return
    except DataFormatError as error:
        log.add(FindingKind.FORMAT, path, 0, expected, error, INCOMPLETE)
        return
    more = set(json.loads(read_small(fs, path))) - {each.name for each in fields(manifest)}
    if more != {CRC_NAME}:
        found = f"others: {sorted(more - {CRC_NAME})!r:.200}"
        log.add(FindingKind.FORMAT, path, 0, "the fields of a manifest", found, INCOMPLETE)
    owner = (state.identity.group, state.identity.node)
    if (manifest.group, manifest.node) != owner:
        log.add(
            FindingKind.FORMAT,
            path,
            0,
            f"a snapshot of {'/'.join(owner)}",
            f"{manifest.group}/{manifest.node}",
            INCOMPLETE,
        )
    state.manifest = manifest
