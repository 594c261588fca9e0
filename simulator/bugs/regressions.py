"""Bugs that the simulator once found in this project, planted again: see ``docs/bugs-found.md``."""

from __future__ import annotations

import store.log.repair_note
import store.recovery.recovery
from broker.state.queue_expiry import QueueFirsts
from broker.state.state_machine import BrokerCheckpointWork, BrokerStateMachine
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS, CALM
from store.io.filesystem import Bytes, File
from store.log.commit_log import CommitLog
from store.log.log_reader import Hole, HoleReason
from store.recovery.log_scan import LogScan, scan
from store.recovery.recovery import Recovery
from store.state.hard_state import DurableMark

bug = BugsOf(BROKERS, seconds=8.0)


@bug("E1x", "No space left", 20, "full disk")
def full_disk_in_a_derived_file_stops_a_node(patch: Patch) -> None:
    """A disk that is full as rows of queues and keys are written is taken for a broken one."""

    @patch.instead(BrokerCheckpointWork, "flush")
    def flush(work: BrokerCheckpointWork) -> None:
        for each in work._flushes:
            each.run()


@bug("E2x", "to be committed and durable", 40, "file cut short", "pause")
def lost_end_taken_for_an_unfinished_write(patch: Patch) -> None:
    """A segment shorter than its durable part is opened as if nothing were lost."""
    patch.set(store.recovery.recovery, "short_segment", lambda _log, _floor: None)
    patch.set(store.recovery.recovery, "lost_suffix", lambda _log, _index, _checkpoint: None)
    patch.set(Recovery, "_lose_suffix", lambda _recovery, _error: None)


@bug("E4x", "to be committed and durable", 40, "files swapped", "pause")
def lost_end_not_missed_once_damage_is_repaired(patch: Patch) -> None:
    """Segments are swapped, and only what peers repair is checked."""
    patch.set(store.recovery.recovery, "displaced", lambda _log, _position, _floor: False)
    patch.set(store.recovery.recovery, "misplaced", lambda _log, _position: None)
    patch.set(Recovery, "_lose_suffix", lambda _recovery, _error: None)


# Calm clients leave queues whose rows are all below the cut.
@bug("E3x", "are missing", 80, "expiry", "slow disk", "full disk", "pause", world=CALM)
def log_cut_before_a_checkpoint_says_so(patch: Patch) -> None:
    """The log is cut when an expiry is applied, though the newest checkpoint needs it."""

    @patch.around(BrokerStateMachine, "_expire")
    def at_once(
        expire: Original[None], machine: BrokerStateMachine, position: int, firsts: QueueFirsts
    ) -> None:
        expire(machine, position, firsts)
        machine.listener.expired(machine.expired_position)


@bug("E5x", "stops by itself: OSError(5", 20, "unreadable sector")
def part_of_an_unreadable_block_is_written(patch: Patch) -> None:
    """A repair writes an entry's bytes only, also where the disk cannot read."""

    @patch.instead(store.log.repair_note, "overwrite_blocks")
    def partial(file: File, data: Bytes, offset: int, *, may_cut: bool = False) -> None:  # noqa: ARG001 - as the one replaced
        file.pwrite(data, offset)


@bug("E6x", "to be committed and durable", 40, "unreadable sector", "pause")
def unreadable_end_taken_for_an_unfinished_write(patch: Patch) -> None:
    """An unreadable part above the durable mark is cut like an unfinished write."""

    @patch.instead(store.recovery.recovery, "scan")
    def torn(log: CommitLog, found: LogScan, mark: DurableMark, *_more: object) -> Hole:
        return scan(log, found, mark)._replace(reason=HoleReason.CRC)

    patch.set(store.recovery.recovery, "lost_suffix", lambda _log, _index, _checkpoint: None)
    patch.set(Recovery, "_lose_suffix", lambda _recovery, _error: None)
