"""The check of a replica's ConsumeQueues, from what its small files say."""

from __future__ import annotations

from store.filesystem import Readable
from store.layout import segment_name, segment_start
from store.verify.findings import FindingLog
from store.verify.queues import QueueCheck
from store.verify.statefiles import StateFiles


def open_queue_check(
    fs: Readable, state: StateFiles, directory: str, log: FindingLog
) -> QueueCheck:
    """The check of a replica's ConsumeQueues, knowing what its small files say."""
    machine, size = state.machine, state.identity.segment_size

    def segment_path(position: int) -> tuple[str, int]:
        start = segment_start(position, size)
        return f"{directory}/commitlog/{segment_name(start)}", position - start

    return QueueCheck(
        fs,
        directory,
        [] if machine is None else machine.queues,
        log,
        checkpoint_path=state.checkpoint_path,
        segment_path=segment_path,
        expired_position=0 if machine is None else machine.expired_position,
        first_position=state.mark.first_position,
    )
