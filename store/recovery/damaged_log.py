"""What changes beside the log while a replica that is not open has it repaired: mark and vote."""

from __future__ import annotations

from dataclasses import replace

from store.errors import DamagedLogError
from store.io.filesystem import FileSystem
from store.io.two_slot_file import TwoSlotFile
from store.log.entry import Entry
from store.recovery.opening import StoreConfig, begin_incarnation
from store.recovery.snapshot_install import raise_term, raise_vote_floor
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark


def note_committed(fs: FileSystem, directory: str, entry: Entry) -> bool:
    """A committed entry of a peer was put in the place of a damaged one, behind whole ones.

    Where the mark is of other entries, what this replica held from there on was never committed,
    and never will be: the mark is durably set on this entry. Returns whether that was so.
    """
    state = f"{directory}/state"
    raise_term(fs, f"{state}/{VOTE_NAME}", entry.term)
    mark_file = TwoSlotFile.open(fs, f"{state}/{MARK_NAME}")
    try:
        mark = DurableMark.unpack(mark_file.payload, mark_file.path)
        if entry.index <= mark.commit_index:
            return False  # what is not as the mark says is damaged
        if entry.index != mark.index and not entry.position < mark.position <= entry.end:
            return False
        named = (entry.index, entry.end, entry.chain_crc)
        if named == (mark.index, mark.position, mark.chain_crc):
            return False
        begins = (mark.first_index, mark.first_position)
        mark_file.save(DurableMark(*named, entry.index, *begins).pack())
    finally:
        mark_file.close()
    return True


def cut_at_damage(
    fs: FileSystem, directory: str, config: StoreConfig, damage: DamagedLogError
) -> None:
    """Has the log end before a damaged entry that nobody can give back, from the next opening on.

    The directory is another disk then, as where the end of a log was lost, and does not vote until
    it holds as much again. So nothing that it confirmed is counted any more. The damage must lie
    behind the newest checkpoint. A crash in between leaves it as it is.
    """
    begin_incarnation(fs, directory, config)
    raise_vote_floor(fs, directory, damage.known_index)
    mark_file = TwoSlotFile.open(fs, f"{directory}/state/{MARK_NAME}")
    try:
        mark = DurableMark.unpack(mark_file.payload, mark_file.path)
        last = damage.index - 1
        lowered = replace(
            mark,
            index=last,
            position=damage.end,
            chain_crc=damage.chain_crc or 0,
            commit_index=min(mark.commit_index, last),
        )
        mark_file.save(lowered.pack())
    finally:
        mark_file.close()
