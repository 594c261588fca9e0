"""Continuous proof: brokers find a state that differs from most voters' in time.

The simulator's own digest says whose state is which, and this check counts the majority itself. It
asks the shipped proof only for its result.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.hosts.broker_host import BrokerHost
    from simulator.hosts.host import Host

IN_TIME_SECONDS = 1.0
"""From the moment in which a replica's state differs to the moment in which the replica reports
it."""


class StateProofs(Invariant):
    """A report among replicas of one program is a finding. It also shows whether the proof was
    right, and in time."""

    def __init__(self) -> None:
        self._digests: dict[int, dict[str, bytes]] = {}
        self._other_since: dict[str, float] = {}  # by host: when its state became another

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self._other_since.pop(host.name, None)

    def restored(self, host: Host, index: int, digest: bytes) -> None:
        """See :class:`Invariant`."""
        if index >= 0:
            self._see(host, index, digest)

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._see(host, entry.index, digest)

    def _see(self, host: Host, index: int, digest: bytes) -> None:
        said = self._digests.setdefault(index, {})
        said[host.name] = digest
        ((most, count),) = Counter(said.values()).most_common(1)
        voters = host.voters
        if 2 * count > len(voters):
            for name, each in said.items():
                if each != most:
                    self._other_since.setdefault(name, host.now)

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        node = host.node
        if node is None:
            return
        if node.state_divergence.proved >= 0:
            host.coverage_mark("state proved")
        if node.state_divergence.unrepaired:
            if not (host.damaged or host.damaged_parts):
                raise Violation(f"{host.name} gives up its state, and its disk was not damaged")
            host.coverage_mark("state taken from the leader, for what nobody repairs")
        elif node.state_divergence.wrong:
            self._said(host, node.state_divergence.wrong)
        proofs = _of_a_broker(host).broker.context.proofs
        if proofs.contested:
            raise Violation(f"{host.name} says that nobody knows whose state is right")

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        said = self._digests[max(self._digests)]
        if len({*said.values()}) > 1:
            raise Violation(f"{host.name} and others have different states, and nobody says so")

    def _said(self, host: Host, wrong: str) -> None:
        since = self._other_since.get(host.name)
        if since is None:
            raise Violation(f"{host.name} gives up a state that is that of most, for {wrong}")
        seconds = host.now - since
        if seconds > IN_TIME_SECONDS:
            raise Violation(f"{host.name} has another state for {seconds:.2f} s, and says it late")
        raise Violation(f"{host.name} has another state in {wrong}, and says so in time")


def _of_a_broker(host: Host) -> BrokerHost:
    from simulator.hosts.broker_host import BrokerHost  # noqa: PLC0415 - which imports invariants

    assert isinstance(host, BrokerHost)  # noqa: S101 - only they have such states
    return host
