"""A booting node has all that it knew to be committed and durable (promise 6; bug C9).

Damage in the middle of a log is no unfinished last write. A node that cuts there has lost what it
had confirmed, and may elect a leader that lacks it. It must repair that from its peers, or not run.
An empty disk is another matter, and so is one that has lost the end of its log and says so by
another incarnation. Its owner gets the log again and does not vote until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class CommittedLogSurvivesRestart(Invariant):
    """Remembers up to which entry each machine held what it knew to be committed."""

    step_parts = ChangedPart.COMMIT | ChangedPart.DURABLE

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is not None:
            core = host.node.core
            held = min(core.commit_index, core.durable_index)
            self._held[host.name] = max(held, self._held.get(host.name, -1))

    def disk_replaced(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self._held.pop(host.name, None)

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        core = host.node.core
        last_index, before = core.entry_cache.last_index, self._incarnations.get(host.name)
        self._incarnations[host.name] = core.incarnation
        harmed = host.damaged or host.damaged_parts or host.has_lost_disk or host._disk_failed
        if before not in (None, core.incarnation) and not harmed:
            raise Violation(
                f"{host.name} takes its disk for another one, as if it had lost what was durable"
            )
        if last_index < 0 or before not in (None, core.incarnation):
            # Another disk: only what it gets from now on counts. Its entries may still be cut.
            self._held[host.name] = min(core.commit_index, last_index)
        if last_index < self._held.get(host.name, -1):
            raise Violation(
                f"{host.name} boots with a log to {last_index}; it had known entry "
                f"{self._held[host.name]} to be committed and durable"
            )
