"""Reading the small files of a stopped replica, without repairing them as a start would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgpack

from store.checkpoint import NAME_PREFIX, Checkpoint
from store.errors import DamagedError, DataFormatError, UnreadableError
from store.filesystem import Readable
from store.formatfile import FORMAT_NAME, FORMAT_VERSION, TITLE, Identity, decode_format
from store.heldfile import FORGET, HELD_NAME, unpack_held
from store.machinestate import MachineState, decode_machine_state
from store.manifest import MANIFEST_NAME, decode_manifest
from store.refill import FLOOR_NAME, REBUILD_NAME
from store.shapes import U32_MAX, array, integer
from store.slotfile import SLOT_COUNT, SLOT_SIZE, decode_slot, slot_owner
from store.statefiles import MARK_NAME, VOTE_NAME, HardState, Mark
from store.verify.agreement import check_first_index, check_mark, check_snapshot
from store.verify.digests import StateDigest
from store.verify.files import DANGLING, is_hidden, listed_names, reason
from store.verify.findings import INCOMPLETE, RESTORE, FindingKind, FindingLog
from store.verify.smallfiles import read_checkpoint, read_head, read_small
from store.verify.statefiles import SavedCheckpoint, StateFiles
from store.wholefile import TEMPORARY_SUFFIX

ONE_SLOT = (
    "the other copy is whole and the next start repairs this one; "
    "unless the power failed while it was written, suspect the disk"
)
LOCK_NAME = "lock"
STATE_FILES = (VOTE_NAME, MARK_NAME)
CHECKPOINT = "the next start uses an older checkpoint and reads more of the log; suspect the disk"


def read_identity(fs: Readable, directory: str) -> Identity:
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


def is_replica(fs: Readable, directory: str) -> bool:
    """Whether a directory without a format file still holds what only a replica has."""
    if MANIFEST_NAME in listed_names(fs, directory):
        return True
    names = listed_names(fs, f"{directory}/state")
    if any(name in names or f"{name}{TEMPORARY_SUFFIX}" in names for name in STATE_FILES):
        return True
    return bool(listed_names(fs, f"{directory}/commitlog"))


def read_state(fs: Readable, directory: str, identity: Identity, log: FindingLog) -> StateFiles:
    """Reads all of it, noting what is wrong with each file by itself, and with all together."""
    state = StateFiles(identity)
    state.vote_path = f"{directory}/state/{VOTE_NAME}"
    state.mark_path = f"{directory}/state/{MARK_NAME}"
    state.manifest_path = f"{directory}/{MANIFEST_NAME}"
    owner = identity.owner
    _read_vote(fs, state, owner, log)
    _read_mark(fs, state, owner, log)
    _read_held(fs, f"{directory}/state/{HELD_NAME}", owner, log)
    _read_floor(fs, f"{directory}/state/{FLOOR_NAME}", log)
    state.rebuilds = REBUILD_NAME in listed_names(fs, f"{directory}/state")
    _read_checkpoints(fs, f"{directory}/state", state, log)
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
                expected=f"a log that begins with entry {state.mark.first_index}",
                found=f"entry {state.manifest.first_index}",
                advice=INCOMPLETE,
            )
        if not _has_lock(fs, directory):
            check_snapshot(directory, state, state.manifest, log)
    return state


def _read_floor(fs: Readable, path: str, log: FindingLog) -> None:
    """There is one while a refilled replica lacks what it held before."""
    expected = "the entry that must be here again"
    try:
        slot = decode_slot(read_head(fs, path, SLOT_SIZE))
        (floor,) = array(msgpack.unpackb(b"" if slot is None else slot[1]), 1)
        integer(floor)
    except FileNotFoundError:
        pass
    except DamagedError as error:
        _add(log, FindingKind.FORMAT, error, expected=expected)
    except (ValueError, msgpack.UnpackException) as error:
        log.add(FindingKind.FORMAT, path, 0, expected=expected, found=f"another record: {error}")


def _has_lock(fs: Readable, directory: str) -> bool:
    """Whether it is a node's own directory: a snapshot has no lock file."""
    return LOCK_NAME in listed_names(fs, directory) or fs.exists(f"{directory}/{LOCK_NAME}")


def _read_vote(fs: Readable, state: StateFiles, owner: str, log: FindingLog) -> None:
    expected = "term and vote"
    vote = _read_slots(fs, state.vote_path, owner, FindingKind.VOTE, log)
    if vote is None:
        return
    try:
        found = HardState.unpack(vote, state.vote_path)
    except DamagedError as error:
        _add(log, FindingKind.VOTE, error, expected=expected)
        return
    if found.term < 0:
        log.add(FindingKind.VOTE, state.vote_path, 0, expected=expected, found=found)
    else:
        state.hard_state = found


def _read_mark(fs: Readable, state: StateFiles, owner: str, log: FindingLog) -> None:
    expected = "the mark of a log"
    payload = _read_slots(fs, state.mark_path, owner, FindingKind.MARK, log)
    if payload is None:
        return
    try:
        mark = Mark.unpack(payload, state.mark_path)
    except DamagedError as error:
        _add(log, FindingKind.MARK, error, expected=expected)
        return
    if (
        min(mark.index, mark.commit_index) < -1
        or min(mark.position, mark.chain_crc, mark.first_index, mark.first_position) < 0
        or mark.chain_crc > U32_MAX
    ):
        log.add(FindingKind.MARK, state.mark_path, 0, expected=expected, found=mark)
    else:
        state.mark = mark


def _read_slots(
    fs: Readable,
    path: str,
    owner: str,
    kind: FindingKind,
    log: FindingLog,
    *,
    advice: str = RESTORE,
) -> bytes | None:
    """The payload of the newest whole slot."""
    try:
        data = read_head(fs, path, SLOT_COUNT * SLOT_SIZE)
    except FileNotFoundError:
        log.add(kind, path, 0, expected="a file", found="none")
        return None
    except DamagedError as error:
        _add(log, kind, error, expected="two copies of the record", advice=advice)
        return None
    slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in range(0, len(data), SLOT_SIZE)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        expected = "two copies of the record"
        log.add(kind, path, 0, expected=expected, found="neither is whole", advice=advice)
        return None
    for at in range(0, SLOT_COUNT * SLOT_SIZE, SLOT_SIZE):
        found = slot_owner(data[at : at + SLOT_SIZE])
        if found not in ("", owner):
            expected = f"the file of {owner}"
            log.add(kind, path, at, expected=expected, found=f"that of {found}", advice=advice)
            break
    if len(whole) < SLOT_COUNT:
        at = 0 if slots[0] is None else SLOT_SIZE
        log.add(kind, path, at, expected="two whole copies", found="one", advice=ONE_SLOT)
    return max(whole)[1]


def _read_held(fs: Readable, path: str, owner: str, log: FindingLog) -> None:
    """It may be absent."""
    if not fs.exists(path) and HELD_NAME not in listed_names(fs, path.rpartition("/")[0]):
        return
    payload = _read_slots(fs, path, owner, FindingKind.HELD, log, advice=FORGET)
    expected = "what other members hold"
    try:
        held = () if payload is None else unpack_held(payload, path)
    except DamagedError as error:
        _add(log, FindingKind.HELD, error, expected=expected, advice=FORGET)
        return
    nodes = [each.node for each in held]
    if len(set(nodes)) < len(nodes):
        found = f"two numbers of one member: {', '.join(sorted(nodes))}"
        log.add(FindingKind.HELD, path, 0, expected=expected, found=found, advice=FORGET)


def _read_checkpoints(fs: Readable, directory: str, state: StateFiles, log: FindingLog) -> None:
    try:
        names = sorted(fs.list_directory(directory))
    except FileNotFoundError:
        names = []  # told of each file that must be there
    except (OSError, ValueError) as error:
        names = []
        why, hidden = f"cannot be read: {reason(error)}", is_hidden(error)
        log.add(FindingKind.FORMAT, directory, 0, expected="a directory", found=why, unread=hidden)
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
            _add(log, FindingKind.CHECKPOINT, error, expected=expected, advice=CHECKPOINT)
            continue
        if f"{checkpoint.index:020d}" != digits:
            log.add(
                FindingKind.CHECKPOINT,
                path,
                16,
                expected=f"the checkpoint of entry {digits}",
                found=f"that of {checkpoint.index}",
                advice=CHECKPOINT,
            )
            continue
        machine = _read_machine(path, checkpoint, log)
        state.digests.append(StateDigest.of(checkpoint, path))
        # They come in the order of their indexes: names have them in 20 digits.
        if state.checkpoint is not None:
            older = replace(state.checkpoint, state=b"")
            said = state.machine
            if said is not None:
                said = said._replace(broker=said.broker[:1])
            state.older.append(SavedCheckpoint(state.checkpoint_path, older, said))
        state.checkpoint_path, state.checkpoint, state.machine = path, checkpoint, machine


def _read_machine(path: str, checkpoint: Checkpoint, log: FindingLog) -> MachineState | None:
    """What a checkpoint says of the derived files, if that can be read and fits its end."""
    try:
        machine = decode_machine_state(checkpoint.state)
    except DataFormatError as error:
        log.add(
            FindingKind.CHECKPOINT,
            path,
            16,
            expected="the state of a broker",
            found=error,
            first=checkpoint.index,
        )
        return None
    starts = checkpoint.term_starts
    if checkpoint.commit_index < checkpoint.index or not _rise(starts, checkpoint.index):
        log.add(
            FindingKind.CHECKPOINT,
            path,
            16,
            expected=f"what was known after entry {checkpoint.index}, committed and applied",
            found=f"committed up to {checkpoint.commit_index}, term starts {list(starts)}",
            first=checkpoint.index,
        )
    end = checkpoint.end_position
    if machine.applied_end != end or machine.expired_position > end:
        log.add(
            FindingKind.CHECKPOINT,
            path,
            16,
            expected=f"a state applied up to {end}, with nothing expired behind that",
            found=f"applied up to {machine.applied_end}, expired up to {machine.expired_position}",
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


def _read_manifest(fs: Readable, directory: str, state: StateFiles, log: FindingLog) -> None:
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
                expected="the manifest of a snapshot, or the lock file of a node's own directory",
                found="neither",
                advice=INCOMPLETE,
            )
        return
    except DamagedError as error:
        _add(log, FindingKind.FORMAT, error, expected=expected, advice=INCOMPLETE)
        return
    except DataFormatError as error:
        log.add(FindingKind.FORMAT, path, 0, expected=expected, found=error, advice=INCOMPLETE)
        return
    owner = (state.identity.group, state.identity.node)
    if (manifest.group, manifest.node) != owner:
        log.add(
            FindingKind.FORMAT,
            path,
            0,
            expected=f"a snapshot of {'/'.join(owner)}",
            found=f"{manifest.group}/{manifest.node}",
            advice=INCOMPLETE,
        )
    state.manifest = manifest


def _add(
    log: FindingLog,
    kind: FindingKind,
    error: DamagedError,
    *,
    expected: str,
    advice: str = RESTORE,
) -> None:
    log.add(
        kind,
        error.path,
        error.position,
        expected=expected,
        found=error.what,
        advice=advice,
        unread=isinstance(error, UnreadableError),
    )
