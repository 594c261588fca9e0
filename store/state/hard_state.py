"""The two records that a replica overwrites in place: its hard state and its durable mark.

Both are MessagePack arrays in a :mod:`store.io.two_slot_file`::

    state/vote    [term, vote]                      vote: node id, "" for none
    state/mark    [index, position, chain CRC, commit index, first index, first position]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from store.errors import DamagedError
from store.field_checks import I64_MIN, array, integer, text

VOTE_NAME = "vote"
MARK_NAME = "mark"


class HardState(NamedTuple):
    """What Raft must not forget: the current term, and for whom this node voted in it."""

    term: int = 0
    vote: str = ""

    def pack(self) -> bytes:
        return _pack((self.term, self.vote))

    @staticmethod
    def unpack(payload: bytes, path: str) -> HardState:
        """Raises :class:`~store.errors.DamagedError`."""
        try:
            term, vote = _fields(payload, 2)
            return HardState(integer(term, I64_MIN), text(vote))
        except ValueError as error:
            raise _unexpected(path, error) from error


@dataclass(frozen=True, slots=True)
class DurableMark:
    """What is known about the log: all below ``position`` is durable, and may not be missed.

    ``index`` is the last entry below ``position`` and ``chain_crc`` its chain CRC (-1, and 0, in
    an empty log). No entry up to ``commit_index`` is ever truncated. ``first_index`` is the first
    entry retained and ``first_position`` where it lies or will lie; what is below has expired.
    """

    index: int = -1
    position: int = 0
    chain_crc: int = 0
    commit_index: int = -1
    first_index: int = 0
    first_position: int = 0

    def pack(self) -> bytes:
        positions = (self.first_index, self.first_position)
        return _pack((self.index, self.position, self.chain_crc, self.commit_index, *positions))

    @staticmethod
    def unpack(payload: bytes, path: str) -> DurableMark:
        """Raises :class:`~store.errors.DamagedError`."""
        try:
            return DurableMark(*(integer(field, I64_MIN) for field in _fields(payload, 6)))
        except ValueError as error:
            raise _unexpected(path, error) from error


def _pack(record: tuple[int | str, ...]) -> bytes:
    payload: bytes = msgpack.packb(record)
    return payload


def _fields(payload: bytes, count: int) -> Sequence[object]:
    try:
        fields = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"it is not MessagePack: {error}") from error
    return array(fields, count)


def _unexpected(path: str, error: Exception) -> DamagedError:
    return DamagedError(path, 0, f"the record has unexpected fields: {error}")
