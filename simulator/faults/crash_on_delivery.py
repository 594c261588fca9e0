"""A process that dies between the hand-out of messages and the commit of the offset behind them.

The group must get them again then: at least once, and never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.faults.actions import LEADER
from simulator.workload.history import Listener, Place

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget
    from store.message.record import MessageRecord


class CrashOnDelivery(Listener):
    """Once armed, waits for the next answer to a pull of a consumer."""

    def __init__(self, cluster: FaultTarget) -> None:
        self._cluster = cluster
        self._armed: dict[str, str] = {}

    def arm(self, client: str, victim: str) -> None:
        """The victim dies when that consumer next gets messages."""
        self._armed[client] = victim

    def disarm(self) -> None:
        """Disarms it."""
        self._armed.clear()

    def delivered(self, consumer: str, _place: Place, _record: MessageRecord) -> None:
        """See :class:`Listener`. The consumer handles all of the answer in the same event."""
        client = consumer.partition(".")[0]
        victim = self._armed.pop(client, None)
        if victim is not None:
            self._cluster.loop.soon(self._strike, client, victim)

    def _strike(self, client: str, victim: str) -> None:
        cluster = self._cluster
        if victim == LEADER:
            leader = cluster.leader()
            if leader is None:
                return
            leader.coverage_mark("leader died with messages just given out")
            leader.crash()
            return
        for client_host in cluster.client_hosts_named(client):
            client_host.coverage_mark("consumer died with messages just given to it")
            client_host.crash()
