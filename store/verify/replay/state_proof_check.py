"""What the log says of the states of members, against the checkpoints that a replica has.

A ``proof`` in the log holds the digests that the voters had after one entry
(:mod:`store.state.state_digests`). A checkpoint of that entry must have what a majority of them
had; and so must one of the entry with the proof, where that follows and holds nothing else: that is
how a group ends that has nothing to do. Only the newest times of its segments may differ then.
"""

from __future__ import annotations

from collections.abc import Sequence

from store.errors import DamagedError, DataFormatError
from store.io.filesystem import ReadableFileSystem
from store.log.entry import Entry
from store.state.machine_state import decode_machine_state
from store.state.state_digests import digests_of, judge, unpack_reports
from store.verify.files.small_files import read_checkpoint
from store.verify.findings import FindingKind, FindingLog
from store.verify.log.log_commands import StatedProof
from store.verify.plan.ranges import ProvedCheckpoint, ReplicaRange
from store.verify.state.state_files import StateFiles

NEWEST_TIMES = "log"
"""The table in which a new segment is noted, whatever the entry that begins it holds."""


def check_proofs(
    fs: ReadableFileSystem, state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog
) -> None:
    """Tells of checkpoints whose state is not the one that was proved after their entry.

    What cannot be read of them is told elsewhere.
    """
    paths = {each.checkpoint.index: each.path for each in state.older}
    if state.checkpoint is not None:
        paths[state.checkpoint.index] = state.checkpoint_path
    for proved in [proved for part in parts for proved in part.proofs]:
        path = paths.get(proved.checkpoint)
        if path is None:
            continue
        verdict = judge(unpack_reports(proved.reports))
        try:
            digests = digests_of(decode_machine_state(read_checkpoint(fs, path).state))
        except (DamagedError, DataFormatError, OSError):
            continue
        same = (NEWEST_TIMES,) if proved.checkpoint != proved.point else ()
        wrong = [table for table in verdict.differences(digests) if table not in same]
        if wrong:
            log.add(
                FindingKind.CHECKPOINT,
                path,
                16,
                f"the state that a majority of the voters had after entry {proved.point}, "
                f"as the log says, in: {', '.join(wrong)}",
                "another state",
                first=proved.checkpoint,
            )


def proved_checkpoints(
    proof: StatedProof, entry: Entry, state: StateFiles, *, has_messages: bool
) -> list[ProvedCheckpoint]:
    """The checkpoints of a replica that a proof in an entry tells of."""
    told = [proof.point]
    if proof.alone and not has_messages and proof.point == entry.index - 1:
        told.append(entry.index)
    return [
        ProvedCheckpoint(index, proof.point, proof.reports)
        for index in told
        if index in state.checkpoint_indexes
    ]
