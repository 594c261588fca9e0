"""Opens a replica's directory: checks whose it is, and gives it its incarnation."""

from __future__ import annotations

from dataclasses import dataclass

from store.errors import DamagedError, DataLockedError, StoreError
from store.io.atomic_file import read_checked_file, replace_file
from store.io.filesystem import FileSystem, Lock
from store.io.two_slot_file import TwoSlotFile
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.log.row_files import ROWS_PER_FILE
from store.recovery.snapshot_install import install
from store.recovery.state_files import irreplaceable
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
    """Who the replica is, and the sizes of its files in bytes.

    * ``segment_size``: the same in the whole group.
    * ``min_free_bytes``: what the log leaves free on the disk for other files, which must still be
      written when no more entries are accepted.
    * ``incarnation``: the number that the directory gets if it is created now, or if it has lost
      the end of its log (``recovery/lost_suffix.py``); 0 for none.
    * ``alone``: no other replica could repair this one.
    * ``direct``: the log is written with direct I/O, for nodes that wait for each write.
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
        """The name of this node in the files that belong to it alone."""
        return f"{self.group}/{self.node}"

    def __post_init__(self) -> None:
        if not SEGMENT_SIZE_MIN <= self.segment_size <= SEGMENT_SIZE_MAX:
            raise ValueError(
                f"segment_size {self.segment_size} is not within "
                f"{SEGMENT_SIZE_MIN} to {SEGMENT_SIZE_MAX}"
            )


def lock_directory(fs: FileSystem, directory: str, config: StoreConfig) -> tuple[Lock, int]:
    """Locks the directory, creates it if there is none, and installs a complete refill.

    Returns the lock and the incarnation. Raises the errors of
    :meth:`store.replica.ReplicaStore.open`, and ``OSError``.
    """
    fs.make_directories(directory)
    try:
        lock = fs.lock(f"{directory}/lock")
    except BlockingIOError as error:
        raise DataLockedError(
            f"{directory}: another process has this data open, or was killed and its last write "
            "has not ended"
        ) from error
    try:
        for name in ("state", "commitlog", "index"):
            fs.make_directories(f"{directory}/{name}")
        # This comes first: data of another node or of a later version must not be touched.
        incarnation = _claim(fs, directory, config)
        install(fs, directory)
    except (StoreError, OSError):
        lock.release()
        raise
    return lock, incarnation


def _claim(fs: FileSystem, directory: str, config: StoreConfig) -> int:
    """Checks whose data this is, and creates the state files of a new directory.

    Returns the incarnation of the directory.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    identity = Identity(config.group, config.node, config.segment_size, config.incarnation)
    if fs.exists(path):
        # A process may have been killed before it synced these names. They are visible then, but
        # not on the disk.
        fs.sync_directory(directory)
        fs.sync_directory(state)
        try:
            found = decode_format(read_checked_file(fs, path), path)
        except DamagedError as error:
            raise irreplaceable(error) from error
        check_identity(found, identity, path)
        return found.incarnation
    if fs.list_directory(f"{directory}/commitlog"):
        raise irreplaceable(DamagedError(path, 0, "the file is missing, though there is a log"))
    fs.sync_directory(directory.rpartition("/")[0] or ("/" if directory[0] == "/" else "."))
    fs.sync_directory(directory)
    TwoSlotFile.create(fs, state, VOTE_NAME, HardState().pack(), config.owner).close()
    TwoSlotFile.create(fs, state, MARK_NAME, DurableMark().pack(), config.owner).close()
    replace_file(fs, state, FORMAT_NAME, encode_format(identity))
    return identity.incarnation


def bring_forward(fs: FileSystem, directory: str) -> None:
    """Durably notes the newest format, before the first file that only this format has is written.

    Called once the replica is open. Until then an older program may still open it.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    found = decode_format(read_checked_file(fs, path), path)
    if found.version < FORMAT_VERSION:
        replace_file(fs, state, FORMAT_NAME, encode_format(found._replace(version=FORMAT_VERSION)))


def begin_incarnation(
    fs: FileSystem, directory: str, config: StoreConfig, evidence_file: ReplicationEvidenceFile
) -> int:
    """Durably gives the directory a new incarnation, and returns it; see
    ``recovery/lost_suffix.py``.

    The old incarnation is saved before, as that of another disk of this node. Otherwise the node
    might pass for a new one, if its log no longer says that it had another disk.
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
