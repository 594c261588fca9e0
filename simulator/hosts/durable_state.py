"""What a host's disk would have after a power failure at this moment."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from simulator.hosts.disk_host import DIRECTORY
from store.errors import DamagedError
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, decode_slot
from store.log.entry import Entry
from store.log.layout import segment_name, segment_start
from store.state.checkpoint import NAME_PREFIX, decode_checkpoint
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark, HardState
from store.state.replication_evidence_file import HELD_NAME, SavedEvidence, unpack_evidence

if TYPE_CHECKING:
    from simulator.engine.disk import SimulatedFileSystem
    from simulator.hosts.host import Host

LOG_DIRECTORY = f"{DIRECTORY}/commitlog"
MARK_PATH = f"{DIRECTORY}/state/{MARK_NAME}"
HELD_PATH = f"{DIRECTORY}/state/{HELD_NAME}"
VOTE_PATH = f"{DIRECTORY}/state/{VOTE_NAME}"
CHECKPOINT_PATHS = f"{DIRECTORY}/state/{NAME_PREFIX}"

_segment_name = lru_cache(maxsize=256)(segment_name)


def holds_entry(host: Host, entry: Entry, segment_size: int) -> bool:
    """Whether the disk really has this entry, byte for byte, or a checkpoint in its place."""
    if _is_on(host.fs, entry, segment_size):
        return True
    slot = _newest_slot(host, MARK_PATH)
    return slot is not None and entry.index < DurableMark.unpack(slot, MARK_PATH).first_index


def held_entry(host: Host, entry: Entry, segment_size: int) -> bool:
    """Whether it holds this entry, or did a moment ago (``hosts/disks_before_damage.py``), before
    its disk was damaged or taken away from it.

    For promises of several nodes: an answer may be on its way while one of the disks is lost.
    """
    return holds_entry(host, entry, segment_size) or any(
        _is_on(disk, entry, segment_size) for disk in host.disks_before_damage.at(host.now)
    )


def hard_state(host: Host) -> HardState | None:
    """Term and vote that a recovery would find; None if it would find none."""
    return _hard_state(host.fs.durable_bytes(VOTE_PATH) or b"")


def durable_mark(host: Host) -> DurableMark | None:
    """The mark that a recovery would find; None if it would find none."""
    slot = _newest_slot(host, MARK_PATH)
    return None if slot is None else DurableMark.unpack(slot, MARK_PATH)


def checkpoint_end(host: Host) -> int:
    """Where the newest intact checkpoint ends that a recovery would find; 0 without one."""
    ends = [0]
    for path in host.fs.files():
        if path.startswith(CHECKPOINT_PATHS) and path[-1].isdigit():
            with suppress(DamagedError):
                ends.append(
                    decode_checkpoint(host.fs.durable_bytes(path) or b"", path).end_position
                )
    return max(ends)


def saved_evidence(host: Host) -> tuple[SavedEvidence, ...]:
    """The replication evidence that a recovery would find."""
    slot = _newest_slot(host, HELD_PATH)
    return () if slot is None else unpack_evidence(slot, HELD_PATH)


def _is_on(disk: SimulatedFileSystem, entry: Entry, segment_size: int) -> bool:
    start = segment_start(entry.position, segment_size)
    return disk.holds(LOG_DIRECTORY, _segment_name(start), entry.position - start, entry.data)


@lru_cache(maxsize=256)
def _hard_state(data: bytes) -> HardState | None:
    slot = _newest(data)
    return None if slot is None else HardState.unpack(slot, VOTE_PATH)


def _newest_slot(host: Host, path: str) -> bytes | None:
    return _newest(host.fs.durable_bytes(path) or b"")


@lru_cache(maxsize=256)
def _newest(data: bytes) -> bytes | None:
    slots = [
        decode_slot(data[at : at + SLOT_SIZE]) for at in range(0, SLOT_COUNT * SLOT_SIZE, SLOT_SIZE)
    ]
    whole = [slot for slot in slots if slot is not None]
    return max(whole)[1] if whole else None
