"""Planted bugs M of a replica's files: mark, checkpoints, the order of its writes."""

from __future__ import annotations

from dledger.node.checkpointer import Checkpointer
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from store.io.filesystem import Bytes
from store.log.segment import Segment
from store.replica import ReplicaStore
from store.state.durable_mark import DurableMarkTracker
from store.state.hard_state import DurableMark

bug = BugsOf(seconds=8.0)


@bug("M1x", "are committed", 40)
def what_is_not_committed_is_marked(patch: Patch) -> None:
    """The durable mark covers all that the disk has, also what is not committed."""

    @patch.instead(Checkpointer, "_save_mark")
    def mark(checkpointer: Checkpointer) -> None:
        entry = checkpointer._core.entry_cache.entry(checkpointer._writer.synced_index)
        if (
            not checkpointer._marking
            and entry is not None
            and entry.index > checkpointer._marked_index
        ):
            index, place = entry.index, (entry.end, entry.chain_crc)
            if checkpointer._store.save_mark(index, *place, index):
                checkpointer._marked_index = index


@bug(
    "M2x",
    "not the entry that the durable mark names",
    100,
    "partition",
    "crash",
    "power loss of all",
    "crash within a call",
)
def mark_not_lowered_by_a_cut(patch: Patch) -> None:
    """Entries are cut, and the mark still names one of them."""

    @patch.instead(DurableMarkTracker, "lower_for")
    def lower_for(marks: DurableMarkTracker, first_index: int) -> DurableMark:
        return marks._at(first_index - 1)


@bug(
    "M3x",
    "takes its log for damaged",
    80,  # a machine must die between two certain calls
    "expiry",
    "power loss within a call",
    "crash within a call",
)
def segments_removed_before_the_mark_says_so(patch: Patch) -> None:
    """Expired segments are removed before the mark names the new beginning of the log."""
    begin_at = DurableMarkTracker.begin_at

    @patch.around(ReplicaStore, "expire")
    def hasty(expire: Original[None], replica: ReplicaStore, position: int) -> None:
        told: list[tuple[int, int]] = []

        def later(_marks: DurableMarkTracker, first_index: int, first_position: int) -> None:
            told.append((first_index, first_position))

        meanwhile = Patch()
        meanwhile.set(DurableMarkTracker, "begin_at", later)
        try:
            expire(replica, position)
        finally:
            meanwhile.undo()
        for beginning in told:
            begin_at(replica._marks, *beginning)


@bug("M4x", "only the disks of | its disk does not hold it | stops by itself", 10)
def zeros_written_over_entries(patch: Patch) -> None:
    """An entry that grew its file lies where zeros are written ahead next."""

    @patch.around(Segment, "append")
    def forgetful(
        append: Original[None],
        segment: Segment,
        data: Bytes,
        offset: int,
        *,
        zeros_ahead: bool = False,
    ) -> None:
        zeroed = segment.zeroed_end
        append(segment, data, offset, zeros_ahead=zeros_ahead)
        segment.zeroed_end = zeroed
