"""What the log says of the states of members, against the checkpoints that a replica has.

A ``proof`` in the log holds the digests that the voters had after one entry
(:mod:`store.stateproof`). A checkpoint of that entry must have what a majority of them had.
"""

from __future__ import annotations

from collections.abc import Sequence

from store.errors import DamagedError, DataFormatError
from store.filesystem import Readable
from store.machinestate import decode_machine_state
from store.stateproof import digests_of, judge, unpack_reports
from store.verify.findings import FindingKind, FindingLog
from store.verify.ranges import ReplicaRange
from store.verify.smallfiles import read_checkpoint
from store.verify.statefiles import StateFiles


def check_proofs(
    fs: Readable, state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog
) -> None:
    """Tells of checkpoints whose state is not the one that was proved after their entry.

    What cannot be read of them is told elsewhere.
    """
    paths = {each.checkpoint.index: each.path for each in state.older}
    if state.checkpoint is not None:
        paths[state.checkpoint.index] = state.checkpoint_path
    for part in parts:
        for point, reports in part.proofs:
            if point not in paths:
                continue
            verdict = judge(unpack_reports(reports))
            try:
                machine = decode_machine_state(read_checkpoint(fs, paths[point]).state)
                wrong = verdict.differences(digests_of(machine))
            except (DamagedError, DataFormatError, OSError):
                continue
            if wrong:
                log.add(
                    FindingKind.CHECKPOINT,
                    paths[point],
                    16,
                    expected=f"the state that a majority of the voters had after entry {point}, as "
                    f"the log says, in: {', '.join(wrong)}",
                    found="another state",
                    first=point,
                )
