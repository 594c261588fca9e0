"""The newest checkpoint of a snapshot: the state after the snapshot's last entry."""

from __future__ import annotations

from dataclasses import dataclass

from spark.datasource.snapshots import Snapshot
from spark.errors import ReplicaError
from store.state.format_file import Identity
from store.state.machine_state import MachineState
from store.verify.findings import FindingLog
from store.verify.state.state_reader import read_state


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """``index``: the last entry in the state. ``path``: the file of the checkpoint."""

    index: int
    path: str
    machine: MachineState


def snapshot_state(snapshot: Snapshot) -> SnapshotState | None:
    """The state; ``None`` for a snapshot of a replica without entries.

    Raises :class:`~spark.errors.ReplicaError` if the checkpoint cannot be read.
    """
    manifest = snapshot.manifest
    log = FindingLog(snapshot.name)
    identity = Identity(manifest.group, manifest.node, snapshot.segment_size)
    state = read_state(snapshot.open(), snapshot.path, identity, log)
    if state.checkpoint is not None and state.machine is not None:
        return SnapshotState(state.checkpoint.index, state.checkpoint_path, state.machine)
    if state.checkpoint is None and manifest.commit_index < manifest.first_index:
        return None
    why = str(log.findings[0]) if log.findings else "missing"
    raise ReplicaError(f"{snapshot.path}/state/checkpoint-*, byte 0: {why}")
