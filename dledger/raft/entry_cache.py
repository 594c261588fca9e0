"""What the core knows of its log without asking the disk.

The terms of all entries fit in a short list, because entries of one term are consecutive; the
newest entries are kept whole, so that followers that keep up are served from memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from dledger.errors import InvariantError, SafetyProperty
from store.log.entry import Entry

NO_INDEX = -1
NO_TERM = 0


class EntryCache:
    """The entries ``first_index`` .. ``last_index`` of one node: their terms, and the newest whole.

    The cache always holds every entry above the commit index: what may still be cut can be cut
    without reading the disk. An empty log has ``last_index`` -1; the term before it is 0.
    """

    def __init__(
        self,
        *,
        first_index: int = 0,
        last_index: int = NO_INDEX,
        term_starts: Iterable[tuple[int, int]] = (),
        end_position: int = 0,
        chain_crc: int = 0,
        tail: Iterable[Entry] = (),
        tail_base: tuple[int, int] | None = None,
        cache_bytes_max: int = 32 << 20,
    ) -> None:
        """``tail`` are the newest entries; ``tail_base`` is the end position and chain CRC of the
        entry before them (by default the log's own, for an empty tail)."""
        self.first_index = first_index
        self.last_index = last_index
        self.end_position = end_position
        self.chain_crc = chain_crc
        self._terms: list[int] = []
        self._starts: list[int] = []
        for term, start in term_starts:
            self._terms.append(term)
            self._starts.append(start)
        self._cache: deque[Entry] = deque(tail)
        self._cache_bytes = sum(entry.size for entry in self._cache)
        self._cache_bytes_max = cache_bytes_max
        self._base = (end_position, chain_crc) if tail_base is None else tail_base

    def term_starts(self, last_index: int) -> tuple[tuple[int, int], ...]:
        """(term, its first index) of every term up to the one of ``last_index``."""
        known = zip(self._terms, self._starts, strict=True)
        return tuple((term, start) for term, start in known if start <= last_index)

    @property
    def last_term(self) -> int:
        """Term of the last entry, 0 for an empty log."""
        return self._terms[-1] if self._terms else NO_TERM

    @property
    def cached_from(self) -> int:
        """The first index that is held whole in memory; ``last_index + 1`` if none is."""
        return self.last_index + 1 - len(self._cache)

    def term_at(self, index: int) -> int | None:
        """The term of an entry, or None if it is unknown: past the end, or long removed."""
        if index == NO_INDEX:
            return NO_TERM
        if index > self.last_index or not self._starts or index < self._starts[0]:
            return None
        return self._terms[bisect_right(self._starts, index) - 1]

    def last_index_not_above(self, index: int, term: int) -> int:
        """The highest index, not above ``index``, of an entry whose term is not above ``term``.

        Returns -1 if no entry qualifies. This is how the two sides of a conflict skip whole
        terms (see :class:`~dledger.raft.messages.AppendRejected`).
        """
        index = min(index, self.last_index)
        run = bisect_right(self._starts, index) - 1
        while run >= 0 and self._terms[run] > term:
            index = self._starts[run] - 1
            run -= 1
        return index if run >= 0 else NO_INDEX

    def append(self, entry: Entry) -> None:
        """Adds the next entry; its index and term must continue the log."""
        if entry.index != self.last_index + 1 or entry.term < self.last_term:
            raise InvariantError(
                SafetyProperty.LOG_MATCHING,
                f"entry {entry.index} of term {entry.term} cannot follow "
                f"entry {self.last_index} of term {self.last_term}",
            )
        if entry.term != self.last_term or not self._terms:
            self._terms.append(entry.term)
            self._starts.append(entry.index)
        self._cache.append(entry)
        self._cache_bytes += entry.size
        self.last_index = entry.index
        self.end_position = entry.end
        self.chain_crc = entry.chain_crc

    def truncate(self, first_index: int) -> None:
        """Drops ``first_index`` and all after it; only what the cache holds can be dropped."""
        if first_index < self.cached_from:
            raise InvariantError(
                SafetyProperty.COMMITTED,
                f"cannot drop entries from {first_index}: "
                f"memory holds them from {self.cached_from}",
            )
        while self.last_index >= first_index:
            self._cache_bytes -= self._cache.pop().size
            self.last_index -= 1
        while self._starts and self._starts[-1] > self.last_index:
            self._starts.pop()
            self._terms.pop()
        last = self._cache[-1] if self._cache else None
        self.end_position, self.chain_crc = (
            (last.end, last.chain_crc) if last is not None else self._base
        )

    def end_before(self, index: int) -> tuple[int, int]:
        """End position and chain CRC of the entry before ``index``, which memory must reach."""
        if index == self.last_index + 1:
            return self.end_position, self.chain_crc
        held = self.entry(index - 1)
        return self._base if held is None else (held.end, held.chain_crc)

    def entries(self, first_index: int, bytes_max: int) -> tuple[Entry, ...]:
        """Cached entries from ``first_index`` on: one, then more while they fit in the limit."""
        taken: list[Entry] = []
        size = 0
        for place in range(first_index - self.cached_from, len(self._cache)):
            entry = self._cache[place]
            size += entry.size
            if taken and size > bytes_max:
                break
            taken.append(entry)
        return tuple(taken)

    def entry(self, index: int) -> Entry | None:
        """One entry, if it is held in memory."""
        place = index - self.last_index - 1  # from the end: it is asked for at every event
        cache = self._cache
        return cache[place] if -len(cache) <= place < 0 else None

    def evict(self, keep_from: int) -> None:
        """Gives memory back, oldest first, but keeps ``keep_from`` and all after it."""
        while (
            self._cache_bytes > self._cache_bytes_max
            and self._cache
            and self._cache[0].index < keep_from
        ):
            entry = self._cache.popleft()
            self._base = (entry.end, entry.chain_crc)
            self._cache_bytes -= entry.size

    def expire(self, first_index: int) -> None:
        """Entries below ``first_index`` are gone from the disk; their terms are forgotten.

        The term of the entry just below stays known: it is the previous term of the first append.
        """
        self.first_index = max(self.first_index, first_index)
        while len(self._starts) > 1 and self._starts[1] < self.first_index:
            del self._starts[0], self._terms[0]
