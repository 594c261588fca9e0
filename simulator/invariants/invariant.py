"""A promise that is checked while a cluster runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.hosts.host import Host
from simulator.hosts.observer import ChangedPart, HostObserver

if TYPE_CHECKING:
    from simulator.faults.schedule import Action

__all__ = ["ChangedPart", "Invariant"]


class Invariant(HostObserver[Host]):
    """Watches all hosts of a group. Raises :class:`~simulator.engine.violation.Violation`."""

    def acted(self, action: Action) -> None:
        """Something was done to the cluster from outside."""
