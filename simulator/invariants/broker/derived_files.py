"""Derived files follow from the log: ConsumeQueues, key index, entry index, state.

``dledger verify`` reads the disk of each replica when all is healed and nothing moves, and must
find nothing. It derives everything again from the log. The same happens during a run: soon after a
process has started or links were healed, and after damage is repaired. It looks at one disk at a
time, and seldom, because a look costs as much as half a second of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import Heartbeat, HeartbeatResponse
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.hosts.disk_host import DIRECTORY
from simulator.invariants.invariant import Invariant
from store.verify import verify_replica

if TYPE_CHECKING:
    from simulator.faults.schedule import Action
    from simulator.hosts.host import Host

SETTLED_SECONDS = 1.0
"""After a healing: what was rebuilt is in use by then."""

PAUSE_SECONDS = 8.0
"""Between two looks in mid-run: they take less than a tenth of the time of a run. After twice that
time pauses are half as long as the run so far, because a look costs as much as the log is long."""


class DerivedFilesSound(Invariant):
    """Reads a copy of the disk: a process has the other one open."""

    sent_kinds = (Heartbeat, HeartbeatResponse)

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._hosts: dict[str, None] = {}
        self._next_look = PAUSE_SECONDS

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self._hosts[host.name] = None
        self._due[host.name] = host.now + SETTLED_SECONDS

    def acted(self, action: Action) -> None:
        """See :class:`Invariant`."""
        if action.name == "heal":
            for name in self._hosts:
                self._due.setdefault(name, action.at + SETTLED_SECONDS)

    def sends(self, host: Host, _peer: str, _message: Message) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        due = self._due.get(host.name)
        if due is None or host.now < max(due, self._next_look):
            return
        if (host.damaged or host.damaged_parts) and not self._is_repaired(host):
            return
        del self._due[host.name]
        self._next_look = host.now + max(PAUSE_SECONDS, host.now / 2)
        host.coverage_mark("derived files compared in mid-run")
        self._look(host, f", {host.now - due + SETTLED_SECONDS:.1f} s after it was healed")

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return  # it refused to start, and says why
        self._look(host)

    def _is_repaired(self, host: Host) -> bool:
        """Damage strikes a machine that is down; so all passes of its process come after that.

        A corrupt checkpoint stays until two more are saved, after more has been applied.
        """
        corrupt = not host.damaged_checkpoints.keys().isdisjoint(host.fs.files())
        return host.has_read_all and not corrupt

    def _look(self, host: Host, when: str = "") -> None:
        for what in ("keyindex", "consumequeue/orders/0"):
            if sum(path.startswith(f"{DIRECTORY}/{what}/") for path in host.fs.files()) > 1:
                host.coverage_mark(f"several files below {what.partition('/')[0]}")
        report = verify_replica(host.fs.copy(), DIRECTORY)
        for finding in report.findings:
            raise Violation(f"the disk of {host.name} is not as its log says{when}: {finding}")
