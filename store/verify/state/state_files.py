"""What the small files of a stopped replica say, as they were read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from store.index.block_seals import Tail
from store.state.checkpoint import Checkpoint
from store.state.format_file import Identity
from store.state.hard_state import DurableMark, HardState
from store.state.machine_state import MachineState
from store.state.replication_evidence_file import SavedEvidence
from store.state.snapshot_manifest import Manifest
from store.verify.state.checkpoint_digest import StateDigest


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint, what its state says of derived files, and the file."""

    path: str
    checkpoint: Checkpoint
    machine: MachineState | None


@dataclass(slots=True)
class StateFiles:
    """What ``state`` says. What could not be read has the value of a new replica."""

    identity: Identity
    hard_state: HardState = field(default_factory=HardState)
    vote_path: str = ""
    mark: DurableMark = field(default_factory=DurableMark)
    mark_path: str = ""
    checkpoint: Checkpoint | None = None
    checkpoint_path: str = ""
    """The newest; :attr:`older` are the others, which a start would use if it were damaged: without
    the state of the broker."""
    older: list[SavedCheckpoint] = field(default_factory=list)
    digests: list[StateDigest] = field(default_factory=list)
    machine: MachineState | None = None
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)
    """Of ConsumeQueues, by topic and queue id."""
    rebuilds: bool = False
    """Whether the next start makes all that is derived again: none of it need be there."""
    manifest: Manifest | None = None
    manifest_path: str = ""
    held: tuple[SavedEvidence, ...] = ()
    evidence_path: str = ""
    floor: int = -1
    """The entry up to which it held more before it was refilled, and is to hold as much again."""
    has_lock: bool = False
    """Whether it is a node's own directory: a snapshot has no lock file."""

    @property
    def checkpoint_indexes(self) -> list[int]:
        """The entries of which there is a checkpoint."""
        newest = [] if self.checkpoint is None else [self.checkpoint.index]
        return [*(each.checkpoint.index for each in self.older), *newest]

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


def without_broker(state: StateFiles) -> StateFiles:
    """The same without the broker's own state, which may be large, but whether there is one."""
    machine, checkpoint = state.machine, state.checkpoint
    return replace(
        state,
        machine=None if machine is None else machine._replace(broker=machine.broker[:1]),
        checkpoint=None if checkpoint is None else replace(checkpoint, state=b""),
    )
