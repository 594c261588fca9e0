"""The contents of a replica's small files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from store.index.block_seals import Tail
from store.state.checkpoint import Checkpoint
from store.state.format_file import Identity
from store.state.hard_state import DurableMark, HardState
from store.state.machine_state import MachineState
from store.state.replication_evidence_file import SavedEvidence
from store.state.snapshot_manifest import Manifest
from store.verify.findings import INCOMPLETE, RESTORE, FindingKind
from store.verify.state.checkpoint_digest import StateDigest


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint file. ``machine``: the state in it; ``None`` if that cannot be read."""

    path: str
    checkpoint: Checkpoint
    machine: MachineState | None
    digest: StateDigest

    @property
    def index(self) -> int:
        return self.checkpoint.index

    def without_broker(self) -> SavedCheckpoint:
        """The same without the broker's state, which may be large. Only its first byte stays."""
        machine = self.machine
        if machine is not None:
            machine = machine._replace(broker=machine.broker[:1])
        return replace(self, machine=machine, checkpoint=replace(self.checkpoint, state=b""))


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """An entry that a small file names, with its end and chain CRC, and its term if stated."""

    kind: FindingKind
    path: str
    index: int
    end: int
    chain: int
    term: int | None = None
    advice: str = RESTORE


@dataclass(slots=True)
class StateFiles:
    """The small files of one replica. A file that could not be read has the value of a new one."""

    identity: Identity
    hard_state: HardState = field(default_factory=HardState)
    vote_path: str = ""
    mark: DurableMark = field(default_factory=DurableMark)
    mark_path: str = ""
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    """In the order of their entries. Only the newest may have the state of the broker."""
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)
    """The tails of ConsumeQueues, by topic and queue id."""
    rebuilds: bool = False
    """Whether the next start rebuilds all derived files. Then none of them needs to exist."""
    manifest: Manifest | None = None
    manifest_path: str = ""
    held: tuple[SavedEvidence, ...] = ()
    evidence_path: str = ""
    vote_floor: int = -1
    """The last entry that the replica held before its refill; -1 for none."""
    has_lock: bool = False
    """Whether this is a node's own directory. A snapshot has no lock file."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self.checkpoints[-1].checkpoint if self.checkpoints else None

    @property
    def checkpoint_path(self) -> str:
        return self.checkpoints[-1].path if self.checkpoints else ""

    @property
    def machine(self) -> MachineState | None:
        """The state in the newest checkpoint, if derived files must agree with it."""
        return None if self.rebuilds or not self.checkpoints else self.checkpoints[-1].machine

    @property
    def older(self) -> list[SavedCheckpoint]:
        """All checkpoints but the newest: a start uses them if the newest is damaged."""
        return self.checkpoints[:-1]

    @property
    def checkpoint_index(self) -> int:
        """The entry of the newest checkpoint; -1 without one."""
        return self.checkpoints[-1].index if self.checkpoints else -1

    @property
    def covered_end(self) -> int:
        """The position at which that entry ends; 0 without one. Derived files are complete up to
        there."""
        return self.checkpoints[-1].checkpoint.end_position if self.checkpoints else 0

    @property
    def commit_index(self) -> int:
        """The last entry that the replica knows to be committed; -1 for none."""
        if self.manifest is not None:
            return self.manifest.commit_index
        return max(self.mark.commit_index, self.checkpoint_index)

    @property
    def durable_index(self) -> int:
        """The log must be intact up to this entry. Later entries may be torn."""
        if self.manifest is not None:
            return self.manifest.commit_index
        return max(self.mark.index, self.checkpoint_index)

    @property
    def durable_position(self) -> int:
        """The position at which the last entry ends that must be intact."""
        if self.manifest is not None:
            return self.manifest.end_position
        return max(self.mark.position, self.covered_end)

    def named_entries(self) -> list[NamedEntry]:
        """The entries that manifest, mark and checkpoints name, the newest checkpoint first."""
        mark, manifest = self.mark, self.manifest
        found = []
        if manifest is not None:
            end = (manifest.commit_index, manifest.end_position, manifest.chain_crc, manifest.term)
            found.append(NamedEntry(FindingKind.FORMAT, self.manifest_path, *end, INCOMPLETE))
        place = (mark.index, mark.position, mark.chain_crc)
        found.append(NamedEntry(FindingKind.MARK, self.mark_path, *place))
        for saved in reversed(self.checkpoints):
            one = saved.checkpoint
            end = (one.index, one.end_position, one.chain_crc, one.term)
            found.append(NamedEntry(FindingKind.CHECKPOINT, saved.path, *end))
        return found


def without_broker(state: StateFiles) -> StateFiles:
    """The same without the state of the broker."""
    return replace(state, checkpoints=[saved.without_broker() for saved in state.checkpoints])
