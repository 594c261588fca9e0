"""Opening a replica's directory: who owns it, what it holds, and bringing it to a clean state.

The files that say what must exist are made in an order that gives their absence a meaning:
``state/format`` is written last when a directory is made, so where it exists the vote and the
mark existed too, and where one of them is missing it was lost. A replica that lost its vote or its
mark is damaged and says so: taking it for new could elect a second leader in one term, or cut
entries that were acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass

from store.errors import DamagedError, DataLockedError, StoreError
from store.io.atomic_file import read_checked_file, replace_file
from store.io.filesystem import FileSystem, Lock
from store.io.two_slot_file import TwoSlotFile
from store.log.commit_log import CommitLog
from store.log.entry_index import ROWS_PER_FILE, EntryIndex
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.log.log_reader import HoleReason
from store.log.repair_note import finish
from store.recovery.log_scan import (
    LogScan,
    RecoveredReplica,
    adopt_segments,
    check_durable,
    check_segments,
    clean_tail,
    scan,
)
from store.recovery.lost_suffix import (
    lost_suffix,
    misplaced,
    restore_length,
    short_segment,
    short_segments,
    unreadable,
)
from store.recovery.snapshot_install import install
from store.state.checkpoint import Checkpoint, Checkpoints
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

    ``min_free_bytes`` is what the log leaves free on the disk for all that must still be written
    when no more entries are accepted. ``incarnation`` is the number that the directory gets if it
    is made now, or if it has lost the end of its log (``recovery/lost_suffix.py``); 0 for none.
    ``alone`` if no other replica could give back what is lost. ``direct`` has the log written past
    the page cache, which is for those who wait for each write to reach the disk.
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


@dataclass(slots=True)
class OpenParts:
    """The open pieces of a replica's directory, in agreement with each other."""

    lock: Lock
    log: CommitLog
    index: EntryIndex
    vote_file: TwoSlotFile
    mark_file: TwoSlotFile
    evidence_file: ReplicationEvidenceFile
    checkpoints: Checkpoints
    hard_state: HardState
    mark: DurableMark
    last_term: int
    recovered: RecoveredReplica


def open_parts(fs: FileSystem, directory: str, config: StoreConfig) -> OpenParts:
    """Locks the directory, makes it where it is new, and recovers what it holds.

    Raises the errors of :meth:`store.replica.ReplicaStore.open`, and ``OSError``.
    """
    fs.make_directories(directory)
    try:
        lock = fs.lock(f"{directory}/lock")
    except BlockingIOError as error:
        raise DataLockedError(f"{directory}: another process has this data open") from error
    try:
        for name in ("state", "commitlog", "index"):
            fs.make_directories(f"{directory}/{name}")
        # Nothing of another node's, or of a later version, is touched: not even to finish a refill.
        incarnation = _claim(fs, directory, config)
        install(fs, directory)
        parts = _recover(fs, directory, config, lock, incarnation)
        _bring_forward(fs, directory)
        return parts
    except (StoreError, OSError):
        lock.release()
        raise


def _claim(fs: FileSystem, directory: str, config: StoreConfig) -> int:
    """Checks whose data this is; makes the state files of a directory that is nobody's yet.

    Returns the incarnation of the directory.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    identity = Identity(config.group, config.node, config.segment_size, config.incarnation)
    if fs.exists(path):
        # A process killed before it synced a name leaves one that is seen and not yet on disk.
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


def _bring_forward(fs: FileSystem, directory: str) -> None:
    """Durably notes the newest format, before the first file that only that one has is written.

    Called once the replica is open: until then an earlier program may still open it.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    found = decode_format(read_checked_file(fs, path), path)
    if found.version < FORMAT_VERSION:
        replace_file(fs, state, FORMAT_NAME, encode_format(found._replace(version=FORMAT_VERSION)))


def begin_incarnation(
    fs: FileSystem,
    directory: str,
    config: StoreConfig,
    evidence_file: ReplicationEvidenceFile | None = None,
) -> int:
    """Gives the directory another incarnation, durably, and returns it; see
    ``recovery/lost_suffix.py``.

    That this node stood on another disk is noted before: else it might pass for a new one where the
    log does not say so any more. ``evidence_file`` is that of a replica that is being opened.
    """
    state = f"{directory}/state"
    path = f"{state}/{FORMAT_NAME}"
    before = decode_format(read_checked_file(fs, path), path).incarnation
    noted = evidence_file or ReplicationEvidenceFile(fs, state, config.owner)
    if all(each.node != config.node for each in noted.held):
        noted.save((SavedEvidence(config.node, before, -1), *noted.held))
    if evidence_file is None:
        noted.close()
    identity = Identity(config.group, config.node, config.segment_size, config.incarnation)
    replace_file(fs, state, FORMAT_NAME, encode_format(identity))
    return config.incarnation


def _recover(
    fs: FileSystem, directory: str, config: StoreConfig, lock: Lock, incarnation: int
) -> OpenParts:
    state = f"{directory}/state"
    vote_file = _open_slots(fs, f"{state}/{VOTE_NAME}", config.owner)
    hard_state = HardState.unpack(vote_file.payload, vote_file.path)
    mark_file = _open_slots(fs, f"{state}/{MARK_NAME}", config.owner)
    mark = DurableMark.unpack(mark_file.payload, mark_file.path)
    evidence_file = ReplicationEvidenceFile(fs, state, config.owner)
    checkpoints = Checkpoints(fs, state)
    checkpoint = _newest(checkpoints, mark, mark_file.path)

    log = CommitLog(
        fs,
        f"{directory}/commitlog",
        config.segment_size,
        config.min_free_bytes,
        direct=config.direct,
    )
    log.first_position = mark.first_position
    for segment in adopt_segments(log, fs.list_directory(log.directory)):
        log.remove_segment(segment)
    flushed_end = mark.first_index if checkpoint is None else checkpoint.index + 1
    index = EntryIndex(
        fs, f"{directory}/index", config.index_rows_per_file, mark.first_index, flushed_end
    )
    durable_position = (
        mark.position if checkpoint is None else max(mark.position, checkpoint.end_position)
    )
    check_segments(log, durable_position)
    short = short_segment(log, durable_position)
    if short is not None and config.alone:
        raise DamagedError(
            short.path,
            short.zeroed_end,
            f"the file ends here, though all below position {durable_position} was durable, "
            "and what came behind may be lost with it",
        )
    if short is not None and config.incarnation:
        incarnation = begin_incarnation(fs, directory, config, evidence_file)
        restore_length(short, durable_position)
    found = _start_of_scan(checkpoint, index, mark)
    if not _read_log(log, found, mark, durable_position, config):
        incarnation = begin_incarnation(fs, directory, config, evidence_file)
    if found.last_term > hard_state.term:
        raise DamagedError(
            vote_file.path, 0, f"term {hard_state.term} is below the log's last, {found.last_term}"
        )
    torn = clean_tail(log, found.end, durable_position)
    finish(fs, directory, log)
    index.append(found.rows)
    if checkpoint is not None:
        # Where the files were lost or damaged: what a checkpoint covers is on disk.
        index.flush(checkpoint.index + 1)
    log.start_segment()

    commit_index = mark.commit_index
    if checkpoint is not None:
        if index.row(checkpoint.index).end != checkpoint.end_position:
            raise DamagedError(
                index.path_of(checkpoint.index), 0, "log and checkpoint disagree on an entry's end"
            )
        knows = config.alone or config.incarnation
        if knows and found.last_index == checkpoint.index:
            lost = lost_suffix(log, index, checkpoint)
            if lost is not None and config.alone:
                raise lost
            if lost is not None:
                incarnation = begin_incarnation(fs, directory, config, evidence_file)
        commit_index = max(commit_index, checkpoint.index)
    new_mark = DurableMark(
        found.last_index,
        found.end,
        found.chain_crc or 0,
        commit_index,
        mark.first_index,
        mark.first_position,
    )
    if new_mark != mark:
        mark_file.save(new_mark.pack())
    recovered = _tell(
        found=found,
        checkpoint=checkpoint,
        hard_state=hard_state,
        mark=new_mark,
        torn=torn,
        damage=checkpoints.damage,
        incarnation=incarnation,
        held=evidence_file.held,
        short_segments=short_segments(log, index, found.last_index),
    )
    return OpenParts(
        lock=lock,
        log=log,
        index=index,
        vote_file=vote_file,
        mark_file=mark_file,
        evidence_file=evidence_file,
        checkpoints=checkpoints,
        hard_state=hard_state,
        mark=new_mark,
        last_term=max(found.last_term, 0),
        recovered=recovered,
    )


def _read_log(
    log: CommitLog, found: LogScan, mark: DurableMark, durable_position: int, config: StoreConfig
) -> bool:
    """Scans the log. Returns whether nothing says that its end was lost
    (``recovery/lost_suffix.py``).

    Raises :class:`~store.errors.DamagedError`.
    """
    hole = scan(log, found, mark)
    check_durable(log, found, hole, mark, durable_position)
    if hole.reason is HoleReason.EIO:
        lost = unreadable(log, hole.position)
        if config.alone or not config.incarnation:
            raise lost
        return False
    strange = misplaced(log, hole.position)
    if strange is not None and config.alone:
        raise strange
    return strange is None or not config.incarnation


def _open_slots(fs: FileSystem, path: str, owner: str) -> TwoSlotFile:
    try:
        slots = TwoSlotFile.open(fs, path)
        slots.claim(owner)
        return slots
    except FileNotFoundError as error:
        what = "the file is missing, though this is not a new node: replace it, see docs/safety.md"
        raise DamagedError(path, 0, f"{what} (dledger member replace GROUP NODE)") from error


def _newest(checkpoints: Checkpoints, mark: DurableMark, mark_path: str) -> Checkpoint | None:
    """The newest checkpoint from which the retained log leads on."""
    usable = [found for found in checkpoints.load() if found.index >= mark.first_index - 1]
    if usable:
        newest = usable[-1]
        named = (newest.index, newest.end_position, newest.chain_crc)
        if newest.index == mark.index and named != (mark.index, mark.position, mark.chain_crc):
            raise DamagedError(mark_path, 0, f"disagrees with the checkpoint of {newest.index}")
        return newest
    if mark.first_index > 0:
        damage = "; ".join(str(error) for error in checkpoints.damage) or "none is there"
        raise DamagedError(
            mark_path, 0, f"the log begins at index {mark.first_index} and no checkpoint: {damage}"
        )
    return None


def _start_of_scan(checkpoint: Checkpoint | None, index: EntryIndex, mark: DurableMark) -> LogScan:
    """At the checkpoint, or at the first entry where the entry index must be made again."""
    # What came before an expired log's first entry is not known; its chain starts from itself.
    chain_crc = 0 if mark.first_index == 0 else None
    found = LogScan(mark.first_index - 1, -1, mark.first_position, chain_crc)
    if checkpoint is not None:
        try:
            index.check_files()
            found = LogScan(
                checkpoint.index, checkpoint.term, checkpoint.end_position, checkpoint.chain_crc
            )
        except DamagedError:
            index.forget_files()
        found.applied_index = checkpoint.index
    found.commit_index = max(mark.commit_index, found.applied_index)
    found.tail_base = (found.end, found.chain_crc or 0)
    return found


def _tell(
    *,
    found: LogScan,
    checkpoint: Checkpoint | None,
    hard_state: HardState,
    mark: DurableMark,
    torn: int,
    damage: list[DamagedError],
    incarnation: int,
    held: tuple[SavedEvidence, ...],
    short_segments: tuple[int, ...],
) -> RecoveredReplica:
    applied = -1 if checkpoint is None else checkpoint.index
    while found.tail and found.tail[0].index <= applied:
        found.drop_oldest()
    term_starts = [] if checkpoint is None else list(checkpoint.term_starts)
    term_starts += [start for start in found.term_starts if start[1] > applied]
    return RecoveredReplica(
        term=hard_state.term,
        vote=hard_state.vote,
        first_index=mark.first_index,
        last_index=mark.index,
        end_position=mark.position,
        last_chain_crc=mark.chain_crc,
        term_starts=term_starts,
        commit_index=mark.commit_index,
        checkpoint=checkpoint,
        torn_bytes_cut=torn,
        tail=list(found.tail),
        tail_base=found.tail_base,
        damaged_checkpoints=damage,
        incarnation=incarnation,
        configurations=[entry for entry in found.configurations if entry.index > applied],
        held=held,
        short_segments=short_segments,
    )
