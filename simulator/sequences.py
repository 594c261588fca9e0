"""Faults that are several, one after another: chance alone hardly ever brings them together.

Each step is an action of its own, so a run that is played again, or made smaller, may leave some
of them out. What comes next may depend on what the cluster has become meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.actions import SILENT

if TYPE_CHECKING:
    from simulator.faults import FaultInjector

GIVES_UP_AFTER = (0.8, 1.6, 2.4)
"""When an unheard follower saves a checkpoint and gives up what it can: it keeps the last two."""


def _follower_unheard(injector: FaultInjector) -> None:
    """The leader does not hear a follower that hears it, gives up its oldest entries, and starts
    anew: the leader knows nothing of what it has confirmed, and sends what was given up."""
    leader = injector.cluster.leader()
    if leader is None:
        return
    others = [host.name for host in injector.cluster.hosts if host is not leader]
    follower = injector.rng.choice(others)
    injector.do("cut", follower, leader.name, SILENT)
    for seconds in GIVES_UP_AFTER:
        injector.do_after(seconds, "expire", follower)
    injector.do_after(3.2, "crash", follower)
    injector.do_after(3.4, "heal")


SEQUENCE_KINDS: dict[str, Callable[[FaultInjector], None]] = {
    "follower unheard": _follower_unheard,
}
