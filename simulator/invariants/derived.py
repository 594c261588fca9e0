"""What is derived from the log follows from it: ConsumeQueues, key index, entry index, state.

``dledger verify`` reads the disk of each replica when all is healed and nothing moves, and finds
nothing. It makes all of it again from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.invariants.base import Invariant
from simulator.violation import Violation
from store.verify import verify_replica

if TYPE_CHECKING:
    from simulator.host import Host

DIRECTORY = "/data"


class DerivedFilesSound(Invariant):
    """Reads a copy of the disk: a process has the other one open."""

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return  # it refused to start, and says why
        report = verify_replica(host.fs.copy(), DIRECTORY)
        for finding in report.findings:
            raise Violation(f"the disk of {host.name} is not as its log says: {finding}")
