"""A fault as a group begins: one voter holds nothing yet, and another one is wiped.

It strikes as the run begins. Later only a wiped voter is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.faults.actions import SILENT

if TYPE_CHECKING:
    from simulator.faults.injector import FaultInjector

WIPED_BESIDE_AN_EMPTY_ONE = "voter wiped beside an empty one"

WIPED_WITHIN = (1.4, 2.4)
"""Within this time an empty node has saved which disks it met."""
HEALED_AFTER = 4.0


def wiped_beside_an_empty_one(injector: FaultInjector) -> None:
    """One voter and a minority of the others do not hear each other. If the voter leads, they are
    empty. Then one that hears all is wiped, and the leader is cut off: of three, it alone holds the
    log."""
    cluster, names = injector.cluster, injector.names()
    nodes = [host.node for host in cluster.hosts if host.node is not None]
    if any(node.core.entry_cache.last_index >= 0 for node in nodes):
        return
    if not injector.begin_sequence(WIPED_WITHIN[1] + HEALED_AFTER):
        return
    one, *minority = injector.rng.sample(names, (len(names) + 1) // 2)
    injector.cut_apart([one], minority, SILENT)
    wiped_at = injector.rng.uniform(*WIPED_WITHIN)
    injector.after(wiped_at, _wipe_another, injector, [one, *minority])
    injector.do_after(wiped_at + HEALED_AFTER, "heal")


def _wipe_another(injector: FaultInjector, apart: Sequence[str]) -> None:
    leader, names = injector.cluster.leader(), injector.names()
    if leader is None or leader.name not in apart:
        return
    injector.cut_apart([leader.name], [name for name in names if name != leader.name], SILENT)
    injector.do("wipe-disk", injector.rng.choice([each for each in names if each not in apart]))
