"""The two records that a replica overwrites in place: its hard state and its durable mark.

Both are MessagePack arrays in a :mod:`store.slotfile`::

    state/vote    [term, vote]                      vote: node id, "" for none
    state/mark    [index, position, chain CRC, commit index, first index, first position]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from store.errors import DamagedError

VOTE_NAME = "vote"
MARK_NAME = "mark"


@dataclass(frozen=True, slots=True)
class HardState:
    """What Raft must not forget: the current term, and who got this node's vote in it."""

    term: int = 0
    vote: str = ""

    def pack(self) -> bytes:
        return _pack((self.term, self.vote))

    @staticmethod
    def unpack(payload: bytes, path: str) -> HardState:
        return HardState(*_unpack(payload, path, (int, str)))


@dataclass(frozen=True, slots=True)
class Mark:
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
    def unpack(payload: bytes, path: str) -> Mark:
        return Mark(*_unpack(payload, path, (int,) * 6))


def _pack(record: tuple[int | str, ...]) -> bytes:
    payload: bytes = msgpack.packb(record)
    return payload


def _unpack(payload: bytes, path: str, types: tuple[type, ...]) -> list[Any]:
    try:
        fields = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise DamagedError(path, 0, f"the record is not MessagePack: {error}") from error
    if not isinstance(fields, list) or tuple(map(type, fields)) != types:
        raise DamagedError(path, 0, f"the record has unexpected fields: {fields!r}")
    return fields
