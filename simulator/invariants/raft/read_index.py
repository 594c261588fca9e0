"""A read by index sees everything committed when it was asked, at any node (ReadIndex, thesis 6.4).

Clients compare their answers with each other, which shows a stale read only if somebody wrote the
same thing meanwhile. Here each read is compared with what any node knew to be committed: its index
must be applied when the read is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dledger.errors import ProposeError
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from simulator.invariants.raft.committed_entries import CommittedEntries

if TYPE_CHECKING:
    from dledger.node.node import Node
    from simulator.hosts.host import Host


class ReadIndexSeesCommitted(Invariant):
    """Observes the reads of each process. ``committed`` must hear of an event before this check."""

    def __init__(self, committed: CommittedEntries) -> None:
        self._committed = committed

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        node = host.node
        if node is None:
            return
        add = node.reads.add
        vars(node.reads)["add"] = lambda done: add(self._checked_read(host.name, node, done))

    def _checked_read(
        self, name: str, node: Node, done: Callable[[ProposeError | None], None]
    ) -> Callable[[ProposeError | None], None]:
        newest = self._committed.newest

        def answered(error: ProposeError | None) -> None:
            if error is None and node.applied_index < newest:
                raise Violation(
                    f"{name} answers a read from entry {node.applied_index}, and entry {newest} "
                    "was committed when it was asked"
                )
            done(error)

        return answered
