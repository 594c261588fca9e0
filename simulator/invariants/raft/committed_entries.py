"""An entry that is committed once is committed for ever, and the same for everybody (thesis 3.6).

It is stricter than state-machine safety: it looks at each entry when a node learns that it is
committed, applied or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class CommittedEntries(Invariant):
    """Remembers every entry that any node ever took for committed."""

    step_parts = ChangedPart.COMMIT

    def __init__(self) -> None:
        self.entries: dict[int, tuple[int, int]] = {}  # index -> (term, chain CRC)
        self.terms: dict[int, int] = {}
        """By index, the term in which it was committed: the leader of that term learns it first."""
        self.newest = -1
        """The last of them."""
        self._seen: dict[tuple[str, int], int] = {}

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self.stepped(host)

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        core = host.node.core
        seen = self._seen.get((host.name, host.boot), -1)
        if core.commit_index == seen:
            return
        self._seen[host.name, host.boot] = core.commit_index
        for index in range(max(seen + 1, core.entry_cache.cached_from), core.commit_index + 1):
            entry = core.entry_cache.entry(index)
            if entry is not None:
                self._commit(host, entry)

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._commit(host, entry)

    def _commit(self, host: Host, entry: Entry) -> None:
        identity = (entry.term, entry.chain_crc)
        known = self.entries.get(entry.index)
        if known is None:
            assert host.node is not None  # noqa: S101 - it says what is committed
            self.entries[entry.index] = identity
            self.newest = max(self.newest, entry.index)
            self.terms[entry.index] = host.node.core.term
        elif known != identity:
            raise Violation(
                f"{host.name} commits another entry {entry.index}: "
                f"term {entry.term}, chain {entry.chain_crc:08x}, "
                f"committed before: term {known[0]}, chain {known[1]:08x}"
            )
