"""A small record that is overwritten in place and survives both a torn write and one bad sector.

The file is two slots of 512 bytes, one disk sector each, big-endian::

    byte  type  field
       0  4s    magic "DLSL"
       4  u32   CRC32C of the bytes from 8 to the end of the payload
       8  u64   sequence: 1 for the first save, then one more each time
      16  u32   length of the payload, at most 492
      20        payload, then zeros

If there is room behind the payload, the slot also names its owner. At its end stand the owner's
name (``group/node``), the length of the name as u8, and the CRC32C of both as u32. Files of
programs that knew no owners have zeros there.

A save writes the first slot and syncs, then the second slot and syncs: at rest both hold the same
record. If a save is torn, the other slot is whole. If one slot is damaged at rest, the other still
has the *newest* record. If each save wrote only one slot, in turn, damage to the newer one would
silently bring back the older record. A vote would be forgotten, and a term could get two leaders.

Both slots lie in one block. If the disk cannot read it, no part of it can be written. A save
then replaces the file.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from store.errors import DamagedError, DataFormatError
from store.io.atomic_file import replace_file
from store.io.filesystem import File, FileSystem
from store.io.unreadable_blocks import is_readable, read_until_unreadable

SLOT_SIZE = 512
SLOT_COUNT = 2
SLOT_MAGIC = b"DLSL"
SLOT_HEADER = struct.Struct(">4sIQI")
PAYLOAD_SIZE_MAX = SLOT_SIZE - SLOT_HEADER.size


def encode_slot(sequence: int, payload: bytes, owner: str = "") -> bytes:
    """The 512 bytes of a slot. Raises :class:`ValueError` if the payload does not fit."""
    if len(payload) > PAYLOAD_SIZE_MAX:
        raise ValueError(f"a payload of {len(payload)} bytes exceeds {PAYLOAD_SIZE_MAX}")
    covered = struct.pack(">QI", sequence, len(payload)) + payload
    slot = SLOT_MAGIC + struct.pack(">I", crc32c(covered)) + covered
    name = owner.encode()
    signed = name + bytes((len(name),)) if 0 < len(name) < 256 else b""
    trailer = signed + struct.pack(">I", crc32c(signed)) if signed else b""
    if len(slot) + len(trailer) > SLOT_SIZE:
        trailer = b""
    return slot.ljust(SLOT_SIZE - len(trailer), b"\0") + trailer


def slot_owner(data: bytes) -> str:
    """Whose slot it is; empty if it does not say."""
    if len(data) < SLOT_SIZE:
        return ""
    length = data[SLOT_SIZE - 5]
    signed = data[SLOT_SIZE - 5 - length : SLOT_SIZE - 4]
    if not length or crc32c(signed) != int.from_bytes(data[SLOT_SIZE - 4 : SLOT_SIZE], "big"):
        return ""
    return signed[:-1].decode(errors="replace")


def decode_slot(data: bytes) -> tuple[int, bytes] | None:
    """Sequence and payload of a slot, or ``None`` if the bytes are not a whole slot."""
    if len(data) < SLOT_SIZE:
        return None
    magic, crc, sequence, length = SLOT_HEADER.unpack_from(data)
    if magic != SLOT_MAGIC or length > PAYLOAD_SIZE_MAX:
        return None
    if crc32c(data[8 : SLOT_HEADER.size + length]) != crc:
        return None
    return sequence, data[SLOT_HEADER.size : SLOT_HEADER.size + length]


class TwoSlotFile:
    """The open file. One thread at a time; every ``OSError`` of a save is fatal to the caller."""

    def __init__(
        self, fs: FileSystem, file: File, sequence: int, payload: bytes, owner: str = ""
    ) -> None:
        self.owner = owner
        """Whose file it is, ``group/node``; empty if it does not say."""
        self._fs = fs
        self._file = file
        self._sequence = sequence
        self.path = file.path
        self.payload = payload

    @staticmethod
    def create(
        fs: FileSystem, directory: str, name: str, payload: bytes, owner: str = ""
    ) -> TwoSlotFile:
        """Makes the file with its first record, durable on return."""
        replace_file(fs, directory, name, encode_slot(1, payload, owner) * SLOT_COUNT)
        return TwoSlotFile(fs, fs.open(f"{directory}/{name}"), 1, payload, owner)

    @staticmethod
    def open(fs: FileSystem, path: str) -> TwoSlotFile:
        """Opens the file at its newest whole record and makes both slots hold it.

        Raises :class:`~store.errors.DamagedError` if no slot is whole, and
        ``FileNotFoundError`` if there is no file.
        """
        file = fs.open(path)
        data, unreadable = read_until_unreadable(file, SLOT_COUNT * SLOT_SIZE, 0)
        slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
        whole = [slot for slot in slots if slot is not None]
        if not whole:
            file.close()
            what = "cannot be read" if unreadable else "neither of the two slots is whole"
            raise DamagedError(path, 0, what)
        sequence, payload = max(whole)
        owners = [slot_owner(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
        slot_file = TwoSlotFile(fs, file, sequence, payload, owners[0] or owners[1])
        # The newest record is first written over itself. If the sync that once wrote it failed,
        # only this makes it durable before the older record is overwritten.
        newest = slots.index((sequence, payload))
        if slots[1 - newest] != slots[newest]:
            slot_file._write(newest)
            slot_file._write(1 - newest)
        else:
            # The second sync of a save may have failed: then the second slot reads like the first,
            # and is another on the disk. A save that is torn in the first one needs it.
            slot_file._write(1)
        return slot_file

    def save(self, payload: bytes) -> None:
        """Replaces the record; durable, in both slots, on return."""
        self._sequence += 1
        self.payload = payload
        self._write_both()

    def claim(self, owner: str) -> None:
        """Notes whose file it is, durably, where it does not say.

        Raises :class:`~store.errors.DataFormatError` if it is another's; it is closed then.
        """
        if self.owner == owner:
            return
        if self.owner:
            self.close()
            raise DataFormatError(
                f"{self.path}: the file belongs to {self.owner}, and this node is {owner}: "
                "put this node's own file back, or replace the node, see docs/safety.md"
            )
        self.owner = owner
        self._write_both()

    def close(self) -> None:
        self._file.close()

    def _write_both(self) -> None:
        if is_readable(self._file, 0):
            self._write(0)
            self._write(1)
        else:
            self._replace()

    def _write(self, slot: int) -> None:
        self._file.pwrite(self._slot(), slot * SLOT_SIZE)
        self._file.datasync()

    def _replace(self) -> None:
        directory, _, name = self.path.rpartition("/")
        replace_file(self._fs, directory, name, self._slot() * SLOT_COUNT)
        self._file.close()
        self._file = self._fs.open(self.path)

    def _slot(self) -> bytes:
        return encode_slot(self._sequence, self.payload, self.owner)
