"""The checks of derived files for one replica, from what its small files say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from store.io.filesystem import ReadableFileSystem
from store.log.layout import segment_name, segment_start
from store.verify.findings import FindingLog
from store.verify.index.consume_queue_check import QueueCheck
from store.verify.index.key_index_check import KeyCheck
from store.verify.index.key_index_digests import KeyDigests
from store.verify.state.state_files import StateFiles


def open_queue_check(
    fs: ReadableFileSystem,
    state: StateFiles,
    directory: str,
    log: FindingLog,
    compared: Collection[tuple[str, int]] = (),
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
        compared=compared,
    )


def open_key_check(
    fs: ReadableFileSystem,
    state: StateFiles,
    directory: str,
    log: FindingLog,
    *,
    positions: tuple[int, int | None],
    lost: Sequence[tuple[int, int]],
    compared: bool,
) -> KeyCheck | KeyDigests:
    """That of a range between two positions, the second ``None`` where only the log can tell.

    Rows are compared with files, or digested. What lies in ``lost`` could not be read.
    """
    covered_end = 0 if state.checkpoint is None else state.checkpoint.end_position
    begin, end = positions
    end = covered_end if end is None else min(covered_end, end)
    if not compared:
        return KeyDigests(
            fs, directory, range_position=begin, range_end=end, end_position=covered_end
        )
    return KeyCheck(
        fs,
        directory,
        log,
        first_position=state.mark.first_position,
        end_position=covered_end,
        range_position=begin,
        range_end=end,
        lost=lost,
    )
