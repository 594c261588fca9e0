"""``state/held``: how much of the log the disks of other members are known to hold.

It is a two-slot file (:mod:`store.io.two_slot_file`) with a MessagePack array of ``[node,
incarnation, last index]``. The first save creates it. Committed entries are never cut, so what the
file says stays true. So it is saved only about every second. It may be removed while the replica is
stopped; then nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from store.errors import DamagedError, DataFormatError
from store.field_checks import U64_MAX, array, integer, text
from store.io.filesystem import FileSystem
from store.io.two_slot_file import PAYLOAD_SIZE_MAX, TwoSlotFile

HELD_NAME = "held"

FORGET = (
    "remove state/held of the stopped node: it then notes again what the others hold, and until it "
    "has done so it does not recognise an old copy of a disk"
)
"""What to do about a file that cannot be read."""


class SavedEvidence(NamedTuple):
    """Entries up to ``last_index`` are committed, and durable on the disk of that incarnation."""

    node: str
    incarnation: int
    last_index: int


def unpack_evidence(payload: bytes, path: str) -> tuple[SavedEvidence, ...]:
    """What the file says. Raises :class:`~store.errors.DamagedError`."""
    try:
        return tuple(_held(row) for row in array(msgpack.unpackb(payload)))
    except (ValueError, msgpack.UnpackException) as error:
        raise DamagedError(path, 0, f"the record is not what members hold: {error}") from error


def _held(row: object) -> SavedEvidence:
    node, disk, last = array(row, 3)
    return SavedEvidence(text(node), integer(disk, high=U64_MAX), integer(last, -1))


def pack_evidence(held: Sequence[SavedEvidence]) -> bytes:
    """The reverse of :func:`unpack_evidence`.

    There is room for eighteen members with short names. If there are more, the first are kept.
    """
    kept = list(held)
    while True:
        payload: bytes = msgpack.packb(kept)
        if len(payload) <= PAYLOAD_SIZE_MAX:
            return payload
        kept.pop()


class ReplicationEvidenceFile:
    """Of one replica. Used by the background thread after it was opened."""

    def __init__(self, fs: FileSystem, state: str, owner: str = "") -> None:
        """Reads the file, if there is one. ``owner`` is the node of the replica, ``group/node``.

        Raises ``OSError``, :class:`~store.errors.DataFormatError` for the file of another node, and
        :class:`~store.errors.DamagedError`, which says what to do. A damaged file is not ignored:
        without it the node does not recognise an old copy of a disk.
        """
        self._fs = fs
        self._state = state
        self._owner = owner
        path = f"{state}/{HELD_NAME}"
        try:
            self._file = TwoSlotFile.open(fs, path) if fs.exists(path) else None
            self.held = () if self._file is None else unpack_evidence(self._file.payload, path)
            if self._file is not None and owner:
                self._file.claim(owner)
        except DataFormatError as error:
            raise DataFormatError(f"{error}; or {FORGET}") from error
        except DamagedError as error:
            raise DamagedError(path, error.position, f"{error.reason}; {FORGET}") from error

    def save(self, held: Sequence[SavedEvidence]) -> None:
        """Durably replaces it. Raises ``OSError``."""
        if tuple(held) == self.held:
            return
        payload = pack_evidence(held)
        if self._file is None:
            self._file = TwoSlotFile.create(self._fs, self._state, HELD_NAME, payload, self._owner)
        else:
            self._file.save(payload)
        self.held = tuple(held)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
