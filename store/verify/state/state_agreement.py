"""Whether the small files of a replica agree with each other, and each with itself."""

from __future__ import annotations

from dataclasses import replace

from store.state.checkpoint import NAME_PREFIX
from store.state.snapshot_manifest import Manifest
from store.verify.findings import INCOMPLETE, FindingKind, FindingLog
from store.verify.state.state_files import StateFiles


def check_mark(state: StateFiles, log: FindingLog) -> None:
    """The mark must agree with itself, and with the newest checkpoint: what is committed was
    durable, and the log has all that comes behind the checkpoint."""
    mark = state.mark
    behind = mark.index if state.checkpoint is None else state.checkpoint.index
    wrong = []
    if mark.commit_index > mark.index:
        wrong.append(f"committed up to {mark.commit_index}")
        state.mark = replace(mark, commit_index=mark.index)
    end = max(mark.position, 0 if state.checkpoint is None else state.checkpoint.end_position)
    if mark.first_index > behind + 1 or mark.first_position > end:
        wrong.append(f"a beginning with {mark.first_index} at {mark.first_position}")
        state.mark = replace(state.mark, first_index=0, first_position=0)
    if wrong:
        log.add(
            FindingKind.MARK,
            state.mark_path,
            0,
            f"a log durable up to {mark.index} that is committed no further, and begins "
            f"with entry {behind + 1} or before",
            " and ".join(wrong),
        )


def check_first_index(directory: str, state: StateFiles, log: FindingLog) -> None:
    """What came before an expired log's first entry is known from a checkpoint alone."""
    if state.mark.first_index > 0 and state.checkpoint is None and not _told_of_checkpoint(log):
        log.add(
            FindingKind.CHECKPOINT,
            f"{directory}/state",
            0,
            f"a checkpoint, as the log begins with entry {state.mark.first_index}",
            "none",
        )


def check_snapshot(directory: str, state: StateFiles, manifest: Manifest, log: FindingLog) -> None:
    """A snapshot is as of its one checkpoint, and so is the mark in it."""
    checkpoint, index = state.checkpoint, manifest.commit_index
    path = state.manifest_path
    if checkpoint is None:
        if not _told_of_checkpoint(log):
            log.add(
                FindingKind.CHECKPOINT,
                f"{directory}/state/{NAME_PREFIX}{max(index, 0):020d}",
                0,
                f"the checkpoint of entry {index}, which the snapshot is as of",
                "none",
                INCOMPLETE,
                first=index,
            )
    elif checkpoint.index != index:
        log.add(
            FindingKind.FORMAT,
            path,
            0,
            f"an end at the snapshot's checkpoint, of entry {checkpoint.index}",
            f"entry {index}",
            INCOMPLETE,
            first=index,
        )
    marked = (state.mark.index, state.mark.commit_index)
    told = any(finding.kind is FindingKind.MARK for finding in log.findings)
    if marked != (index, index) and not told:
        log.add(
            FindingKind.MARK,
            state.mark_path,
            0,
            f"the mark of a snapshot as of entry {index}",
            f"entry {marked[0]}, committed up to {marked[1]}",
            INCOMPLETE,
        )


def _told_of_checkpoint(log: FindingLog) -> bool:
    return any(finding.kind is FindingKind.CHECKPOINT for finding in log.findings)
