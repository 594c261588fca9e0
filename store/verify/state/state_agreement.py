"""Checks that the small files of a replica agree with each other."""

from __future__ import annotations

from dataclasses import replace

from store.state.checkpoint import NAME_PREFIX
from store.state.snapshot_manifest import Manifest
from store.verify.findings import INCOMPLETE, FindingKind, FindingLog
from store.verify.state.state_files import StateFiles


def check_agreement(directory: str, state: StateFiles, log: FindingLog) -> None:
    """Compares mark, checkpoints and manifest. Replaces fields of the mark that cannot be right."""
    _check_mark(state, log)
    is_reported = any(finding.kind is FindingKind.CHECKPOINT for finding in log.findings)
    if state.mark.first_index > 0 and state.checkpoint is None and not is_reported:
        # If older entries have expired, only a checkpoint has the state before the log.
        expected = f"a checkpoint, as the log begins with entry {state.mark.first_index}"
        log.add(FindingKind.CHECKPOINT, f"{directory}/state", 0, expected, "none")
    manifest = state.manifest
    if manifest is not None:
        if manifest.first_index != state.mark.first_index:
            expected = f"a log that begins with entry {state.mark.first_index}"
            found = f"entry {manifest.first_index}"
            log.add(FindingKind.FORMAT, state.manifest_path, 0, expected, found, INCOMPLETE)
        if not state.has_lock:
            _check_snapshot(directory, state, manifest, log)


def _check_mark(state: StateFiles, log: FindingLog) -> None:
    """Checks that the mark agrees with itself and with the newest checkpoint.

    Committed entries are durable, and the log has all entries behind the checkpoint.
    """
    mark = state.mark
    behind = mark.index if state.checkpoint is None else state.checkpoint.index
    wrong = []
    if mark.commit_index > mark.index:
        wrong.append(f"committed up to {mark.commit_index}")
        state.mark = replace(mark, commit_index=mark.index)
    if mark.first_index > behind + 1 or mark.first_position > max(mark.position, state.covered_end):
        wrong.append(f"a beginning with {mark.first_index} at {mark.first_position}")
        state.mark = replace(state.mark, first_index=0, first_position=0)
    if wrong:
        expected = (
            f"a log durable up to {mark.index} that is committed no further, and begins "
            f"with entry {behind + 1} or before"
        )
        log.add(FindingKind.MARK, state.mark_path, 0, expected, " and ".join(wrong))


def _check_snapshot(directory: str, state: StateFiles, manifest: Manifest, log: FindingLog) -> None:
    """Checks that a snapshot and its mark end at its one checkpoint."""
    checkpoint, index = state.checkpoint, manifest.commit_index
    reported = {finding.kind for finding in log.findings}
    if checkpoint is None:
        if FindingKind.CHECKPOINT not in reported:
            path = f"{directory}/state/{NAME_PREFIX}{max(index, 0):020d}"
            expected = f"the checkpoint of entry {index}, which the snapshot is as of"
            log.add(FindingKind.CHECKPOINT, path, 0, expected, "none", INCOMPLETE, first=index)
    elif checkpoint.index != index:
        path = state.manifest_path
        expected = f"an end at the snapshot's checkpoint, of entry {checkpoint.index}"
        log.add(FindingKind.FORMAT, path, 0, expected, f"entry {index}", INCOMPLETE, first=index)
    marked = (state.mark.index, state.mark.commit_index)
    if marked != (index, index) and FindingKind.MARK not in reported:
        expected = f"the mark of a snapshot as of entry {index}"
        found = f"entry {marked[0]}, committed up to {marked[1]}"
        log.add(FindingKind.MARK, state.mark_path, 0, expected, found, INCOMPLETE)
