"""What a host's disk would have after a power failure at this very moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.entry import Entry
from store.layout import segment_name, segment_start
from store.slotfile import SLOT_COUNT, SLOT_SIZE, decode_slot
from store.statefiles import VOTE_NAME, HardState

if TYPE_CHECKING:
    from simulator.host import Host

DIRECTORY = "/data"
VOTE_PATH = f"{DIRECTORY}/state/{VOTE_NAME}"


def holds_entry(host: Host, entry: Entry, segment_size: int) -> bool:
    """Whether the disk truly holds this entry, byte for byte."""
    start = segment_start(entry.position, segment_size)
    path = f"{DIRECTORY}/commitlog/{segment_name(start)}"
    return host.fs.durable_bytes(path, entry.position - start, entry.size) == entry.data


def hard_state(host: Host) -> HardState | None:
    """Term and vote that a recovery would find; None if it would find none."""
    data = host.fs.durable_bytes(VOTE_PATH) or b""
    slots = [
        decode_slot(data[at : at + SLOT_SIZE]) for at in range(0, SLOT_COUNT * SLOT_SIZE, SLOT_SIZE)
    ]
    whole = [slot for slot in slots if slot is not None]
    return HardState.unpack(max(whole)[1], VOTE_PATH) if whole else None
