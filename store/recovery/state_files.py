"""The state files of a replica: vote, mark, checkpoints and replication evidence.

``state/format`` is written last when a directory is created. So if it exists, the vote and the mark
existed too. If one of them is missing, it was lost: the replica is damaged, and reports it. If it
counted as new, a term could get a second leader, or acknowledged entries could be cut.
"""

from __future__ import annotations

from store.errors import DamagedError
from store.io.filesystem import FileSystem
from store.io.two_slot_file import TwoSlotFile
from store.state.checkpoint import Checkpoint, Checkpoints
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark, HardState
from store.state.replication_evidence_file import ReplicationEvidenceFile

REPLACE = "replace the node, see docs/safety.md (dledger member replace GROUP NODE)"


class OpenStateFiles:
    """The open files of one replica. ``checkpoint`` is the newest one that its log continues."""

    def __init__(self, fs: FileSystem, directory: str, owner: str) -> None:
        """``owner`` is the name of the node, ``group/node``.

        Raises :class:`~store.errors.DamagedError`, :class:`~store.errors.DataFormatError` if a
        file belongs to another node, and ``OSError``.
        """
        state = f"{directory}/state"
        self.vote_file = _open_slots(fs, f"{state}/{VOTE_NAME}", owner)
        self.hard_state = HardState.unpack(self.vote_file.payload, self.vote_file.path)
        self.mark_file = _open_slots(fs, f"{state}/{MARK_NAME}", owner)
        self.mark = DurableMark.unpack(self.mark_file.payload, self.mark_file.path)
        self.evidence_file = ReplicationEvidenceFile(fs, state, owner)
        self.checkpoints = Checkpoints(fs, state)
        self.checkpoint = self._newest_checkpoint()

    @property
    def applied_index(self) -> int:
        """The last entry that the checkpoint covers; without one, the entry before the log."""
        return self.mark.first_index - 1 if self.checkpoint is None else self.checkpoint.index

    @property
    def commit_index(self) -> int:
        """All entries up to this one are known to be committed; -1 for none."""
        applied = -1 if self.checkpoint is None else self.checkpoint.index
        return max(self.mark.commit_index, applied)

    @property
    def durable_position(self) -> int:
        """All bytes of the log below this position were durable."""
        end = 0 if self.checkpoint is None else self.checkpoint.end_position
        return max(self.mark.position, end)

    def save_mark(self, mark: DurableMark) -> None:
        """Durably replaces the mark."""
        if mark != self.mark:
            self.mark_file.save(mark.pack())
            self.mark = mark

    def forget_log(self) -> None:
        """Durably notes that the log is empty, and that no entry was applied."""
        self.save_mark(DurableMark())
        self.checkpoints.drop_after(-1)
        self.checkpoint = None

    def close(self) -> None:
        self.vote_file.close()
        self.mark_file.close()
        self.evidence_file.close()

    def _newest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that the retained log continues."""
        mark, path = self.mark, self.mark_file.path
        usable = [found for found in self.checkpoints.load() if found.index >= mark.first_index - 1]
        if usable:
            newest = usable[-1]
            named = (newest.index, newest.end_position, newest.chain_crc)
            if newest.index == mark.index and named != (mark.index, mark.position, mark.chain_crc):
                raise DamagedError(path, 0, f"disagrees with the checkpoint of {newest.index}")
            return newest
        if mark.first_index > 0:
            damage = "; ".join(map(str, self.checkpoints.damage)) or "none is there"
            what = f"the log begins at index {mark.first_index} and no checkpoint: {damage}"
            raise DamagedError(path, 0, what)
        return None


def irreplaceable(error: DamagedError) -> DamagedError:
    """The damage of a file that nothing else can make again, with what to do."""
    return DamagedError(error.path, error.position, f"{error.reason}; {REPLACE}")


def _open_slots(fs: FileSystem, path: str, owner: str) -> TwoSlotFile:
    try:
        slots = TwoSlotFile.open(fs, path)
    except FileNotFoundError as error:
        what = "the file is missing, though this is not a new node"
        raise irreplaceable(DamagedError(path, 0, what)) from error
    except DamagedError as error:
        raise irreplaceable(error) from error
    slots.claim(owner)
    return slots
