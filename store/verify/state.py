"""Reading the small files of a stopped replica, without repairing them as a start would."""

from __future__ import annotations

from dataclasses import dataclass, field

from store.checkpoint import NAME_PREFIX, Checkpoint, decode_checkpoint
from store.errors import DamagedError, DataFormatError
from store.filesystem import FileSystem
from store.formatfile import FORMAT_NAME, Identity, decode_format
from store.heldfile import FORGET, HELD_NAME, unpack_held
from store.machinestate import MachineState, decode_machine_state
from store.manifest import MANIFEST_NAME, Manifest, decode_manifest
from store.slotfile import SLOT_COUNT, SLOT_SIZE, decode_slot, slot_owner
from store.statefiles import MARK_NAME, VOTE_NAME, HardState, Mark
from store.verify.findings import RESTORE, FindingKind, FindingLog
from store.wholefile import TEMPORARY_SUFFIX, read_file

ONE_SLOT = (
    "the other copy is whole and the next start repairs this one; "
    "unless the power failed while it was written, suspect the disk"
)
LOCK_NAME = "lock"
INCOMPLETE = "take the snapshot again into a new directory"
CHECKPOINT = "the next start uses an older checkpoint and reads more of the log; suspect the disk"


@dataclass(slots=True)
class StateFiles:
    """What ``state`` says. What could not be read has the value of a new replica."""

    identity: Identity
    hard_state: HardState = field(default_factory=HardState)
    vote_path: str = ""
    mark: Mark = field(default_factory=Mark)
    mark_path: str = ""
    checkpoint: Checkpoint | None = None
    checkpoint_path: str = ""
    machine: MachineState | None = None
    manifest: Manifest | None = None
    manifest_path: str = ""

    @property
    def commit_index(self) -> int:
        """Up to which entry this replica knows the log to be committed; -1 for none."""
        if self.manifest is not None:
            return self.manifest.commit_index
        checkpointed = -1 if self.checkpoint is None else self.checkpoint.index
        return max(self.mark.commit_index, checkpointed)

    @property
    def durable_index(self) -> int:
        """Up to which entry the log must be whole; what lies behind may be torn."""
        if self.manifest is not None:
            return self.manifest.commit_index
        checkpointed = -1 if self.checkpoint is None else self.checkpoint.index
        return max(self.mark.index, checkpointed)

    @property
    def durable_position(self) -> int:
        """Where the last entry ends that must be whole."""
        if self.manifest is not None:
            return self.manifest.end_position
        checkpointed = 0 if self.checkpoint is None else self.checkpoint.end_position
        return max(self.mark.position, checkpointed)


def read_identity(fs: FileSystem, directory: str) -> Identity:
    """Whose data it is.

    Raises :class:`~store.errors.DataFormatError` for a directory that is no replica, or one in a
    format that this program does not know, and :class:`~store.errors.DamagedError`.
    """
    path = f"{directory}/state/{FORMAT_NAME}"
    try:
        return decode_format(read_file(fs, path), path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    if not fs.exists(directory):
        raise DataFormatError(f"{directory}: there is no such directory")
    if fs.exists(f"{directory}/commitlog") and fs.list_directory(f"{directory}/commitlog"):
        raise DamagedError(path, 0, "the file is missing, though there is a log")
    raise DataFormatError(
        f"{directory}: not the data of a replica (it has no state/{FORMAT_NAME}); "
        "name a directory <data>/<group>/<node>"
    )


def read_state(fs: FileSystem, directory: str, identity: Identity, log: FindingLog) -> StateFiles:
    """Reads all of it, noting what is wrong with each file by itself."""
    state = StateFiles(identity)
    state.vote_path = f"{directory}/state/{VOTE_NAME}"
    state.mark_path = f"{directory}/state/{MARK_NAME}"
    state.manifest_path = f"{directory}/{MANIFEST_NAME}"
    owner = identity.owner
    vote = _read_slots(fs, state.vote_path, owner, FindingKind.VOTE, log)
    mark = _read_slots(fs, state.mark_path, owner, FindingKind.MARK, log)
    try:
        if vote is not None:
            state.hard_state = HardState.unpack(vote, state.vote_path)
    except DamagedError as error:
        _add(log, FindingKind.VOTE, error, expected="term and vote")
    try:
        if mark is not None:
            state.mark = Mark.unpack(mark, state.mark_path)
    except DamagedError as error:
        _add(log, FindingKind.MARK, error, expected="the mark of a log")
    _read_held(fs, f"{directory}/state/{HELD_NAME}", owner, log)
    _read_checkpoints(fs, f"{directory}/state", state, log)
    _read_manifest(fs, state, log)
    return state


def _read_slots(
    fs: FileSystem,
    path: str,
    owner: str,
    kind: FindingKind,
    log: FindingLog,
    *,
    advice: str = RESTORE,
) -> bytes | None:
    """The payload of the newest whole slot."""
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        log.add(kind, path, 0, expected="a file", found="none")
        return None
    slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in range(0, len(data), SLOT_SIZE)]
    whole = [slot for slot in slots[:SLOT_COUNT] if slot is not None]
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


def _read_held(fs: FileSystem, path: str, owner: str, log: FindingLog) -> None:
    """It may be absent."""
    if not fs.exists(path):
        return
    payload = _read_slots(fs, path, owner, FindingKind.HELD, log, advice=FORGET)
    try:
        if payload is not None:
            unpack_held(payload, path)
    except DamagedError as error:
        _add(log, FindingKind.HELD, error, expected="what other members hold", advice=FORGET)


def _read_checkpoints(fs: FileSystem, directory: str, state: StateFiles, log: FindingLog) -> None:
    for name in fs.list_directory(directory):
        digits = name.removeprefix(NAME_PREFIX)
        if digits == name or name.endswith(TEMPORARY_SUFFIX):
            continue
        path = f"{directory}/{name}"
        try:
            checkpoint = decode_checkpoint(read_file(fs, path), path)
        except DamagedError as error:
            _add(log, FindingKind.CHECKPOINT, error, expected="a checkpoint", advice=CHECKPOINT)
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
        if state.checkpoint is None or checkpoint.index > state.checkpoint.index:
            state.checkpoint, state.checkpoint_path = checkpoint, path
    if state.checkpoint is not None:
        try:
            state.machine = decode_machine_state(state.checkpoint.state)
        except DataFormatError as error:
            log.add(
                FindingKind.CHECKPOINT,
                state.checkpoint_path,
                16,
                expected="the state of a broker",
                found=error,
                first=state.checkpoint.index,
            )


def _read_manifest(fs: FileSystem, state: StateFiles, log: FindingLog) -> None:
    if not fs.exists(state.manifest_path):
        directory = state.manifest_path.removesuffix(f"/{MANIFEST_NAME}")
        if not fs.exists(f"{directory}/{LOCK_NAME}"):
            log.add(
                FindingKind.FORMAT,
                state.manifest_path,
                0,
                expected="the manifest of a snapshot, or the lock file of a node's own directory",
                found="neither",
                advice=INCOMPLETE,
            )
        return
    try:
        manifest = decode_manifest(read_file(fs, state.manifest_path), state.manifest_path)
    except DamagedError as error:
        _add(log, FindingKind.FORMAT, error, expected="the manifest of a snapshot")
        return
    owner = (state.identity.group, state.identity.node)
    if (manifest.group, manifest.node) != owner:
        log.add(
            FindingKind.FORMAT,
            state.manifest_path,
            0,
            expected=f"a snapshot of {'/'.join(owner)}",
            found=f"{manifest.group}/{manifest.node}",
        )
    checkpoint = state.checkpoint
    if checkpoint is not None and checkpoint.index > manifest.commit_index:
        log.add(
            FindingKind.FORMAT,
            state.manifest_path,
            0,
            expected=f"an end not before the checkpoint of entry {checkpoint.index}",
            found=f"entry {manifest.commit_index}",
            advice=INCOMPLETE,
            first=manifest.commit_index,
        )
    if manifest.first_index != state.mark.first_index:
        log.add(
            FindingKind.FORMAT,
            state.manifest_path,
            0,
            expected=f"a log that begins with entry {state.mark.first_index}",
            found=f"entry {manifest.first_index}",
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
    log.add(kind, error.path, error.position, expected=expected, found=error.what, advice=advice)
