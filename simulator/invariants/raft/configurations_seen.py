"""Which configuration counts where, and its majorities, computed from the entries seen.

A configuration counts from its entry on, committed or not, and falls back if that entry is cut
(thesis 4.1). In a joint one a majority of the old and one of the new voters is needed (4.3). The
check asks nodes only which entries their logs have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dledger.raft.raft_state import Role
from simulator.invariants.invariant import ChangedPart, Invariant
from store.log.entry import Entry, EntryKind

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class Members(NamedTuple):
    """The content of one entry. ``old_voters``: none but in a joint configuration."""

    voters: tuple[str, ...]
    old_voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    incarnations: Mapping[str, int] = {}

    @classmethod
    def of(cls, entry: Entry) -> Members:
        """The body is JSON (``docs/format.md``)."""
        told = json.loads(bytes(entry.body))
        return cls(
            tuple(told["voters"]),
            tuple(told["old_voters"]),
            tuple(told["learners"]),
            told["incarnations"],
        )

    def is_majority(self, names: Collection[str]) -> bool:
        """Of the voters; of the old and of the new ones, while they change."""
        return all(
            2 * sum(voter in names for voter in voters) > len(voters)
            for voters in (self.voters, self.old_voters)
            if voters
        )


class SeenConfigurations(Invariant):
    """Checks nothing: remembers each configuration that a leader has ever added to its log.

    It hears each event before the checks that use it.
    """

    step_parts = ChangedPart.LOG | ChangedPart.RAFT_STATE

    def __init__(self, voters: Sequence[str]) -> None:
        """``voters``: those of the settings, with which a group begins."""
        self._first = Members(tuple(voters))
        self._terms: dict[int, dict[int, Members]] = {}  # by index, by term
        self._committed: dict[int, Members] = {}
        self._looked: dict[str, tuple[int, int]] = {}  # term, last index

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`. All configurations in any log of a leader."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER:
            return
        log = core.entry_cache
        term, looked = self._looked.get(host.name, (-1, -1))
        if term != core.term:
            looked = log.last_index
            while log.term_at(looked) == core.term:
                looked -= 1
        self._looked[host.name] = (core.term, log.last_index)
        for index in range(looked + 1, log.last_index + 1):
            entry = log.entry(index)
            if entry is not None and entry.kind is EntryKind.CONFIGURATION:
                self._terms.setdefault(index, {})[entry.term] = Members.of(entry)

    def applies(self, _host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if entry.kind is EntryKind.CONFIGURATION:
            self._committed[entry.index] = Members.of(entry)

    def committed_at(self, index: int) -> tuple[int, Members]:
        """The newest configuration at or below an applied index; -1 and the settings' one
        before."""
        at = max((each for each in self._committed if each <= index), default=-1)
        return at, self._committed.get(at, self._first)

    def of(self, host: Host) -> tuple[int, Members]:
        """Index and content of the newest configuration in the log of a running host."""
        assert host.node is not None  # noqa: S101 - as told
        log = host.node.core.entry_cache
        at, found = self.committed_at(min(log.first_index - 1, log.last_index))
        for index, terms in self._terms.items():
            term = log.term_at(index) if index >= log.first_index else None
            if index > at and term in terms:
                at, found = index, terms[term]
        return at, found
