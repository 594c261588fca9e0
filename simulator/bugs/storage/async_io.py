"""Planted bugs in writes without a thread (``store/io/async_io.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.node.log_writer import LogWriter
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.engine.disk_executor import SimulatedAsyncWriter
from simulator.engine.disk_file import SimulatedFile
from store.io.filesystem import Bytes
from store.log.commit_log import CommitLog
from store.log.entry import Entry
from store.log.segment import Segment

Then = Callable[[OSError | None], None]


bug = BugsOf()


@bug("C21x", "its disk does not hold it", 20)
def write_begun_without_its_sync(patch: Patch) -> None:
    """A write ends before it is durable."""

    @patch.instead(SimulatedAsyncWriter, "_write")
    def write(
        _writes: SimulatedAsyncWriter, file: SimulatedFile, data: bytes, position: int
    ) -> None:
        file.append_direct(data, position)


@bug("C22x", "its disk does not hold it", 20)
def short_write_taken_for_complete(patch: Patch) -> None:
    """A short or refused write counts as done."""

    @patch.around(Segment, "begin_append")
    def hopeful(
        begin: Original[bool], segment: Segment, data: Bytes, offset: int, then: Then
    ) -> bool:
        def ended(error: OSError | None) -> None:
            then(None if isinstance(error, BlockingIOError) else error)

        return begin(segment, data, offset, ended)


@bug("C23x", "stops by itself", 20)
def log_ends_with_what_was_begun(patch: Patch) -> None:
    """The log ends behind a write as soon as that begins, so a repeated write follows itself."""

    @patch.around(CommitLog, "begin_append")
    def early(
        begin: Original[bool],
        log: CommitLog,
        entries: Sequence[Entry],
        written: Callable[[], None],
        then: Then,
    ) -> bool:
        begun = begin(log, entries, written, then)
        if begun:
            log.end = entries[-1].end
        return begun


@bug("C24x", "not within", 20)
def write_that_must_be_done_again_is_forgotten(patch: Patch) -> None:
    """Nothing repeats a write that the disk could not do at once."""

    @patch.instead(LogWriter, "_begun_ended")
    def told(writer: LogWriter, error: BaseException | None) -> None:
        if not isinstance(error, BlockingIOError):
            writer._written(None, error)


@bug("C26x", "its disk holds", 40, "slow disk", "pause", "crash", nodes=5)
def term_left_out_of_a_write_without_a_thread(patch: Patch) -> None:
    """A write without a thread writes only the entries, not the term before them."""

    @patch.around(LogWriter, "_begin")
    def partial(begin: Original[bool], writer: LogWriter) -> bool:
        held = [(each, each.hard_state) for each in writer._under_way]
        for each, _ in held:
            each.hard_state = None
        if begin(writer):
            return True
        for each, hard_state in held:
            each.hard_state = hard_state
        return False


@bug("C27x", "stops by itself", 40)
def cut_left_out_of_a_write_without_a_thread(patch: Patch) -> None:
    """A write without a thread forgets the cut that must come before it."""

    @patch.around(LogWriter, "_begin")
    def partial(begin: Original[bool], writer: LogWriter) -> bool:
        for each in writer._under_way:
            each.truncate_from = None  # otherwise the log thread would cut when the store refuses
        return begin(writer)
