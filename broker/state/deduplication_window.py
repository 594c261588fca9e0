"""The deduplication window: the newest stored requests, which the next leader knows too.

A producer without an answer sends its request again, although it may have been stored. So each
entry lists its requests in a command (the key hash of the first message of each). All replicas keep
the lists of the newest entries, up to a fixed number of bytes. A new leader starts with these
lists, and adds its own requests while they are pending.

A hash only marks a possible retry; :mod:`broker.ingest.deduplication` then compares the messages.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from dledger.errors import InvariantError, SafetyProperty

REQUESTS_BYTES_MAX = 512 << 10
"""Format: the size of the window in bytes, the same on all replicas: 131,072 requests if entries
have many, 32,768 if each entry has one. A new leader reads it before it serves, in about 10 ms."""

LEADER_REQUESTS = 1 << 17
"""A leader remembers at least this number of requests, and at most twice as many."""

_ENTRY, _WORD = struct.Struct(">qI"), struct.Struct(">I")
_ENTRY_WORDS = _ENTRY.size // _WORD.size


@dataclass(slots=True)
class RecentRequests:
    """The requests of the newest entries, a function of the committed log.

    Bytes, for each entry with requests, oldest first: i64 position of the entry, u32 count, and so
    many u32 key hashes.
    """

    data: bytearray = field(default_factory=bytearray)

    def add(self, position: int, keys: bytes) -> None:
        """Adds an applied entry; ``keys`` are its key hashes, each u32. The oldest entries may be
        dropped."""
        data = self.data
        data += _ENTRY.pack(position, len(keys) // 4)
        data += keys
        while len(data) > REQUESTS_BYTES_MAX:
            _position, count = _ENTRY.unpack_from(data)
            del data[: _ENTRY.size + 4 * count]

    def positions(self) -> dict[int, int]:
        """The position of the newest entry with each key hash.

        Raises :class:`~dledger.errors.InvariantError` if the bytes are cut short.
        """
        # Numbers in a list are quicker than one call of ``struct`` for each entry.
        size = len(self.data) // _WORD.size
        words = list(struct.unpack(f">{size}I", self.data[: size * _WORD.size]))
        found: dict[int, int] = {}
        place = 0
        while place + _ENTRY_WORDS <= size:
            position = words[place] << 32 | words[place + 1]
            first = place + _ENTRY_WORDS
            place = first + words[first - 1]
            for key in words[first:place]:
                found[key] = position
        if place * _WORD.size != len(self.data):
            raise InvariantError(
                SafetyProperty.SAME_STATE,
                f"the recent requests are cut short: {len(self.data)} bytes",
            )
        return found


def pack_keys(keys: Sequence[int]) -> bytes:
    """Key hashes as a command holds them."""
    return struct.pack(f">{len(keys)}I", *keys)


class EntryPosition:
    """The position of an entry in the log; -1 until it is known."""

    __slots__ = ("position",)

    def __init__(self, position: int = -1) -> None:
        self.position = position


class DeduplicationIndex:
    """The requests that a leader knows, by key hash: the entry that holds or will hold each.

    It has two generations, so that forgetting costs nothing: once the newer is full, it replaces
    the older.
    """

    __slots__ = ("newer", "older")

    def __init__(self) -> None:
        self.newer: dict[int, EntryPosition] = {}
        self.older: dict[int, EntryPosition] | dict[int, int] = {}
        """Positions, if it is from the log."""

    def get(self, key: int) -> EntryPosition | None:
        """The newest entry with a request of that key hash, or None."""
        found = self.newer.get(key) or self.older.get(key)
        return EntryPosition(found) if isinstance(found, int) else found

    def age(self) -> None:
        """Called now and then; starts a new generation if the newer is full."""
        if len(self.newer) >= LEADER_REQUESTS:
            self.older, self.newer = self.newer, {}

    def begin(self, recent: RecentRequests) -> None:
        """Starts a term with the requests in the log."""
        self.newer = {}
        self.older = recent.positions()

    def clear(self) -> None:
        self.newer = {}
        self.older = {}
