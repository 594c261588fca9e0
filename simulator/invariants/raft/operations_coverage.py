"""Counts situations that an operator causes or relies on: members, disks, refills and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.configuration import Configuration
from dledger.raft.messages import ReadResponse, TimeoutNow
from dledger.raft.raft_state import Role
from dledger.wire.transport import Message
from simulator.invariants.invariant import ChangedPart, Invariant
from store.log.entry import Entry, EntryKind

if TYPE_CHECKING:
    from simulator.hosts.host import Host

REFILL_PATH = "/data/refill"


class OperationsCoverage(Invariant):
    """Checks nothing; counts each situation as a mark, as
    :class:`~simulator.invariants.raft.coverage.Coverage` does for a single node.
    """

    step_parts = ChangedPart.LOG | ChangedPart.RAFT_STATE
    sent_kinds = (TimeoutNow,)
    received_kinds = (ReadResponse,)

    def __init__(self) -> None:
        self._index = -1
        self._term = 0
        self._found: Configuration | None = None
        self._leaving: dict[int, None] = {}  # terms

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.fs.has_files_below(REFILL_PATH):
            host.coverage_mark("started in the middle of a refill")

    def sends(self, host: Host, peer: str, _message: Message) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        if not host.node.health.report.healthy:
            host.coverage_mark("unhealthy leader gave way")
        elif peer == host.node.core.config.preferred_leader:
            host.coverage_mark("handed over to the preferred leader")

    def receives(self, host: Host, _sender: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, ReadResponse) and message.index >= 0:
            host.coverage_mark("follower read by index")

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`. Looks at each configuration once."""
        if entry.kind is not EntryKind.CONFIGURATION or entry.index <= self._index:
            return
        before, found = self._found, Configuration.unpack(entry.body)
        if len({*found.voters} ^ {*(found.old_voters or found.voters)}) > 1:
            host.coverage_mark("several voters changed in one step")
        if before is not None and before.is_joint and not found.is_joint:
            if found.voters == before.old_voters:
                host.coverage_mark("change of the voters called off")
            if entry.term > self._term:
                host.coverage_mark("change of the voters ended by the next leader")
        self._index, self._term, self._found = entry.index, entry.term, found

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`. A removed leader leads until its removal is committed."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER or core.term in self._leaving:
            return
        if host.name not in core.configuration.voters:
            self._leaving[core.term] = None
            host.coverage_mark("leader removed itself")

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is not None and host.node.scrubber.repaired:
            host.coverage_mark("damage repaired while the node served")
