"""The deduplication window: the newest stored requests, which the next leader knows too.

A producer without an answer sends its request again, although it may have been stored. So each
entry lists its requests in a command (the key hash of the first message of each). All replicas keep
the lists of the newest entries, up to a fixed number of bytes. A new leader starts with these
lists, and adds its own requests while they are pending.

A hash only marks a possible retry; :mod:`broker.ingest.deduplication` then compares the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct, error, pack, unpack_from

from dledger.errors import InvariantError, SafetyProperty

REQUESTS_BYTES_MAX = 512 << 10
"""Format: the size of the window in bytes, the same on all replicas: 131,072 requests if entries
have many, 32,768 if each entry has one. A new leader reads it before it serves, at 0.3 µs a
request."""

LEADER_REQUESTS = 1 << 17
"""A leader remembers at least this number of requests, and at most twice as many."""

_ENTRY = Struct(">qI")


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

    def entries(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Position and key hashes of each entry, oldest first.

        Raises :class:`~dledger.errors.InvariantError` if the bytes are cut short.
        """
        data, place = self.data, 0
        try:
            while place < len(data):
                position, count = _ENTRY.unpack_from(data, place)
                place += _ENTRY.size
                yield position, unpack_from(f">{count}I", data, place)
                place += 4 * count
        except error as fault:
            raise InvariantError(
                SafetyProperty.SAME_STATE, f"the recent requests are cut short: {fault}"
            ) from fault


def pack_keys(keys: Sequence[int]) -> bytes:
    """Key hashes as a command holds them."""
    return pack(f">{len(keys)}I", *keys)


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
        self.older: dict[int, EntryPosition] = {}

    def get(self, key: int) -> EntryPosition | None:
        """The newest entry with a request of that key hash, or None."""
        return self.newer.get(key) or self.older.get(key)

    def age(self) -> None:
        """Called now and then; starts a new generation if the newer is full."""
        if len(self.newer) >= LEADER_REQUESTS:
            self.older, self.newer = self.newer, {}

    def begin(self, recent: RecentRequests) -> None:
        """Starts a term with the requests in the log."""
        self.newer = {}
        self.older = {}
        for position, keys in recent.entries():
            self.older.update(dict.fromkeys(keys, EntryPosition(position)))

    def clear(self) -> None:
        self.newer = {}
        self.older = {}
