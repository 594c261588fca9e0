"""The check of checkpoints against the proofs in the log.

A ``proof`` in the log holds the digests that the voters had after one entry
(:mod:`store.state.state_digests`). A checkpoint of that entry must have the digests of a majority.
So must a checkpoint of the entry with the proof, if that is the next entry and has nothing else:
the log of an idle group ends with such an entry. Then only the newest times of the segments may
differ.
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
"""The table that changes with each new segment, even if its first entry has no message."""


def check_proofs(
    fs: ReadableFileSystem, state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog
) -> None:
    """Compares checkpoints with the proofs of their entries.

    Checkpoints that cannot be read are reported elsewhere.
    """
    paths = {saved.index: saved.path for saved in state.checkpoints}
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
            expected = (
                f"the state that a majority of the voters had after entry {proved.point}, "
                f"as the log says, in: {', '.join(wrong)}"
            )
            kind, index = FindingKind.CHECKPOINT, proved.checkpoint
            log.add(kind, path, 16, expected, "another state", first=index)


def proved_checkpoints(
    proof: StatedProof, entry: Entry, state: StateFiles, *, has_messages: bool
) -> list[ProvedCheckpoint]:
    """The checkpoints of a replica to which a proof in ``entry`` applies."""
    proved = [proof.point]
    if proof.alone and not has_messages and proof.point == entry.index - 1:
        proved.append(entry.index)
    saved = {each.index for each in state.checkpoints}
    return [
        ProvedCheckpoint(index, proof.point, proof.reports) for index in proved if index in saved
    ]
