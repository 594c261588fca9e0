"""The log of this node: what may enter it, and how far it is durable, matching and committed.

Four indexes, and what each may be trusted for:

- *last*: received. Promises nothing.
- *durable*: on this node's disk.
- *verified*: equal to the log of the leader of the present term. A new term begins at what is
  committed, which every later leader has (leader completeness, thesis 3.4).
- *committed*: held by a majority for ever; never dropped, never replaced.

A follower confirms ``match = min(durable, verified)`` and commits no further than *verified*.
"""

from __future__ import annotations

from collections import deque

from dledger.errors import InvariantError, PeerError, SafetyProperty
from dledger.raft.configuration import (
    Configuration,
    ConfigurationError,
    Configurations,
    check_plausible,
)
from dledger.raft.entry_cache import EntryCache
from dledger.raft.messages import AppendAccepted, AppendRejected, AppendRequest
from dledger.raft.ready import ReadyBuilder, Write
from store.errors import CorruptEntryError, EntryTooLargeError
from store.log.entry import Entry, EntryKind, check_chain
from store.log.layout import next_position


class RaftLog:
    """Every change of the log goes through here, the leader's own entries included."""

    def __init__(
        self,
        *,
        node: str,
        log: EntryCache,
        commit_index: int,
        configurations: Configurations,
        segment_size: int,
        ready_builder: ReadyBuilder,
        incarnation: int,
    ) -> None:
        """``commit_index`` is what is known to be committed; all of ``log`` must be durable."""
        if commit_index > log.last_index:
            raise InvariantError(
                SafetyProperty.COMMITTED,
                f"{node}: entry {commit_index} is committed, but the log ends at {log.last_index}",
            )
        self.entry_cache = log
        self.configurations = configurations
        self.commit_index = commit_index
        self.durable_index = log.last_index
        self.verified_index = commit_index
        self.proven = False
        """Whether the leader of this term has sent an entry that the chain CRC ties to ours: it
        knows the log."""
        self._node = node
        self._incarnation = incarnation
        self._segment_size = segment_size
        self._ready_builder = ready_builder
        self._writes: deque[list[int]] = deque()  # [write id, last index it makes durable]
        self._term_write: int | None = None  # the write that makes the present term durable

    # --- what may be said about it

    @property
    def match_index(self) -> int:
        """What a follower may confirm; nothing while its term is not durable.

        A follower that forgot the term could follow an earlier leader again, and drop at its word
        what it had confirmed to the present one.
        """
        if self._term_write is not None:
            return -1
        return min(self.durable_index, self.verified_index)

    @property
    def received_index(self) -> int:
        """The last entry that is here and matches the leader's, durable or not."""
        return min(self.entry_cache.last_index, self.verified_index)

    def waiting_bytes(self) -> int:
        """Bytes of log that wait for a majority, or for this node's own disk."""
        waiting = self.entry_cache.entry(min(self.commit_index, self.durable_index) + 1)
        return 0 if waiting is None else self.entry_cache.end_position - waiting.position

    def next_position(self, size: int) -> int:
        """Where in the commit log an entry of ``size`` bytes would be written next."""
        return next_position(self.entry_cache.end_position, size, self._segment_size)

    # --- the disk

    def new_term(self, write_id: int) -> None:
        """A new term began, which that write makes durable."""
        self.reset_verified()
        self._term_write = write_id

    def reset_verified(self) -> None:
        """Another leads this term than seemed to: nothing is known yet to be equal to its log."""
        self.verified_index = self.commit_index
        self.proven = False

    def begun(self, write: Write) -> None:
        """The driver took a write; it will be reported to :meth:`written`."""
        if write.entries:
            self._writes.append([write.id, write.entries[-1].index])

    def written(self, write_id: int) -> bool:
        """That write and all before it are durable; whether there is more to confirm now."""
        before = self.match_index
        while self._writes and self._writes[0][0] <= write_id:
            self.durable_index = max(self.durable_index, self._writes.popleft()[1])
        if self._term_write is not None and write_id >= self._term_write:
            self._term_write = None
        return self.match_index > before

    # --- entries

    def add(self, entry: Entry) -> None:
        """The next entry: kept in memory, and on its way to the disk."""
        self.entry_cache.append(entry)
        if entry.kind is EntryKind.CONFIGURATION:
            self.configurations.append(entry.index, Configuration.unpack(entry.body))
        self._ready_builder.write().entries.append(entry)

    def accept(self, sender: str, request: AppendRequest) -> AppendAccepted | AppendRejected | None:
        """What the leader of the present term sent; the answer, or None if it waits for the disk.

        Raises :class:`PeerError` for entries that cannot be right, and nothing is changed then.
        """
        log = self.entry_cache
        previous = request.prev_index
        term = log.term_at(previous)
        if term != request.prev_term and previous > self.commit_index:
            hint = log.last_index_not_above(previous, request.prev_term)
            return AppendRejected(request.term, previous, hint, log.term_at(hint) or 0)
        # Below the commit index logs are equal, but the terms there may be long forgotten.
        if term is not None:
            self._check_committed(sender, previous, term, request.prev_term)
        added = self._checked(sender, request)
        if added:
            # What is here and differs is cut only for entries that continue what stays.
            if added[0].index <= log.last_index:
                self._truncate(added[0].index)
            for entry in added:
                self.add(entry)
            self.proven = True
        last = previous + len(request.entries)
        self.verified_index = max(self.verified_index, last)
        if self.trusts_leader(sender):
            self.commit_to(min(request.commit_index, last))
        if added or self._term_write is not None:
            return None
        return AppendAccepted(request.term, self.match_index, self._incarnation)

    def trusts_leader(self, leader: str) -> bool:
        """Whether the leader's word counts for what is committed: that of a member, and of who has
        shown that it knows the log; where no member is known, anybody's."""
        found = self.configurations
        return self.proven or not found.current.voters or found.knows(leader, self.commit_index)

    def _checked(self, sender: str, request: AppendRequest) -> list[Entry]:
        """Those of the entries that are not here yet, if all of them can be right."""
        log = self.entry_cache
        added: list[Entry] = []
        end = chain_crc = last_term = 0
        for place, entry in enumerate(request.entries, request.prev_index + 1):
            if entry.index != place or entry.term > request.term:
                raise PeerError(f"{sender} sent entry {entry.index} out of place")
            if not added:
                # An entry that is here already cuts nothing: the request may be an old one.
                if entry.index <= log.last_index and self._holds(entry, sender):
                    continue
                end, chain_crc = log.end_before(entry.index)
                last_term = log.term_at(entry.index - 1) or 0
            self._check_continues(entry, sender, end, chain_crc, last_term)
            added.append(entry)
            end, chain_crc, last_term = entry.end, entry.chain_crc, entry.term
        return added

    def _holds(self, entry: Entry, sender: str) -> bool:
        term = self.entry_cache.term_at(entry.index)
        held = self.entry_cache.entry(entry.index)
        if held is not None and held.term == entry.term:
            if held.chain_crc != entry.chain_crc:
                raise PeerError(f"the log of {sender} differs from ours at or below {entry.index}")
            self.proven = True
        if term is None:
            return True  # long removed, so committed
        if entry.index <= self.commit_index:
            self._check_committed(sender, entry.index, term, entry.term)
        return term == entry.term

    def _check_committed(self, sender: str, index: int, ours: int, theirs: int) -> None:
        if ours != theirs:
            raise PeerError(
                f"{self._node}: committed entry {index} has term {ours}, "
                f"leader {sender} has term {theirs}"
            )

    def _check_continues(
        self, entry: Entry, sender: str, end: int, chain_crc: int, last_term: int
    ) -> None:
        try:
            check_chain(entry, chain_crc)
            position = next_position(end, entry.size, self._segment_size)
            if entry.kind is EntryKind.CONFIGURATION:
                check_plausible(Configuration.unpack(entry.body))
        except (CorruptEntryError, EntryTooLargeError, ConfigurationError) as error:
            raise PeerError(
                f"entry {entry.index} of {sender} does not continue our log: {error}"
            ) from error
        if entry.position != position:
            raise PeerError(
                f"entry {entry.index} of {sender} stands at {entry.position}, ours at {position}"
            )
        if entry.term < last_term:
            raise PeerError(
                f"entry {entry.index} of {sender} has term {entry.term}, after term {last_term}"
            )

    def _truncate(self, first_index: int) -> None:
        if first_index <= self.commit_index:
            raise InvariantError(
                SafetyProperty.COMMITTED,
                f"{self._node}: cannot drop entry {first_index}, "
                f"all up to {self.commit_index} is committed",
            )
        write = self._ready_builder.write()
        if write.entries:
            raise InvariantError(
                SafetyProperty.DURABLE, f"{self._node}: entries added and dropped in one bundle"
            )
        write.truncate_from = first_index
        self.entry_cache.truncate(first_index)
        self.configurations.truncate(first_index)
        self.durable_index = min(self.durable_index, first_index - 1)
        self.verified_index = min(self.verified_index, first_index - 1)
        # What is on its way to the disk will be overwritten there: its completion must not be
        # taken for that of other entries at the same indexes (scenario C1).
        for pending in self._writes:
            pending[1] = min(pending[1], first_index - 1)

    # --- commit

    def commit_to(self, index: int) -> None:
        """All up to ``index`` is committed; never goes back."""
        if index <= self.commit_index:
            return
        if index > self.entry_cache.last_index:
            raise InvariantError(
                SafetyProperty.COMMITTED,
                f"{self._node}: cannot commit {index}, the log ends at "
                f"{self.entry_cache.last_index}",
            )
        self.commit_index = index
