"""Opening a replica's directory: who owns it, and which disk it is."""

from __future__ import annotations

from dataclasses import dataclass

from store.errors import DamagedError, DataLockedError, StoreError
from store.io.atomic_file import read_checked_file, replace_file
from store.io.filesystem import FileSystem, Lock
from store.io.two_slot_file import TwoSlotFile
from store.log.entry_index import ROWS_PER_FILE
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.recovery.snapshot_install import install
from store.state.format_file import (
    FORMAT_NAME,
    FORMAT_VERSION,
    Identity,
    check_identity,
    decode_format,
    encode_format,
)
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark, HardState
from store.state.replication_evidence_file import ReplicationEvidenceFile, SavedEvidence


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Who the replica is, and the sizes of its files. ``segment_size`` is one for a whole group.

    ``min_free_bytes``: the log leaves so much free on the disk for what must still be written when
    no more entries are accepted. ``incarnation`` is the number that the directory gets if it is
    made now, or if it has lost the end of its log (``recovery/lost_suffix.py``); 0 for none.
    ``alone``: no other replica could give back what is lost. ``direct``: the log is written past
    the page cache, which is for nodes that wait for each write.
    """

    group: str
    node: str
    segment_size: int = 256 << 20
    min_free_bytes: int = 64 << 20
    index_rows_per_file: int = ROWS_PER_FILE
    incarnation: int = 0
    direct: bool = False
    alone: bool = False

    @property
    def owner(self) -> str:
        """How the files that belong to this node alone name it."""
        return f"{self.group}/{self.node}"

    def __post_init__(self) -> None:
        if not SEGMENT_SIZE_MIN <= self.segment_size <= SEGMENT_SIZE_MAX:
            raise ValueError(
                f"segment_size {self.segment_size} is not within "
                f"{SEGMENT_SIZE_MIN} to {SEGMENT_SIZE_MAX}"
            )


def lock_directory(fs: FileSystem, directory: str, config: StoreConfig) -> tuple[Lock, int]:
    """Locks the directory, makes it if it is new, and installs a refill that is complete.

    Returns the lock and the incarnation. Raises the errors of
    :meth:`store.replica.ReplicaStore.open`, and ``OSError``.
    """
    fs.make_directories(directory)
    try:
        lock = fs.lock(f"{directory}/lock")
    except BlockingIOError as error:
        raise DataLockedError(f"{directory}: another process has this data open") from error
    try:
        for name in ("state", "commitlog", "index"):
            fs.make_directories(f"{directory}/{name}")
        # Data of another node or of a later version is not touched, not even to finish a refill.
        incarnation = _claim(fs, directory, config)
        install(fs, directory)
    except (StoreError, OSError):
        lock.release()
        raise
    return lock, incarnation


def _claim(fs: FileSystem, directory: str, config: StoreConfig) -> int:
    """Checks whose data this is; makes the state files of a directory that is nobody's yet.

    Returns the incarnation of the directory.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    identity = Identity(config.group, config.node, config.segment_size, config.incarnation)
    if fs.exists(path):
        # A process that was killed before it synced a name leaves a name that is visible but not on
        # the disk.
        fs.sync_directory(directory)
        fs.sync_directory(state)
        found = decode_format(read_checked_file(fs, path), path)
        check_identity(found, identity, path)
        return found.incarnation
    if fs.list_directory(f"{directory}/commitlog"):
        raise DamagedError(path, 0, "the file is missing, though there is a log")
    fs.sync_directory(directory.rpartition("/")[0] or ("/" if directory[0] == "/" else "."))
    fs.sync_directory(directory)
    TwoSlotFile.create(fs, state, VOTE_NAME, HardState().pack(), config.owner).close()
    TwoSlotFile.create(fs, state, MARK_NAME, DurableMark().pack(), config.owner).close()
    replace_file(fs, state, FORMAT_NAME, encode_format(identity))
    return identity.incarnation


def bring_forward(fs: FileSystem, directory: str) -> None:
    """Durably notes the newest format, before the first file that only that one has is written.

    Called once the replica is open: until then an earlier program may still open it.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    found = decode_format(read_checked_file(fs, path), path)
    if found.version < FORMAT_VERSION:
        replace_file(fs, state, FORMAT_NAME, encode_format(found._replace(version=FORMAT_VERSION)))


def begin_incarnation(
    fs: FileSystem, directory: str, config: StoreConfig, evidence_file: ReplicationEvidenceFile
) -> int:
    """Gives the directory another incarnation, durably, and returns it; see
    ``recovery/lost_suffix.py``.

    First it notes that this node had another disk. Otherwise the node might pass for a new one if
    its log no longer says so.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    found = decode_format(read_checked_file(fs, path), path)
    held = evidence_file.held
    if all(each.node != config.node for each in held):
        evidence_file.save((SavedEvidence(config.node, found.incarnation, -1), *held))
    replace_file(
        fs, state, FORMAT_NAME, encode_format(found._replace(incarnation=config.incarnation))
    )
    return config.incarnation
