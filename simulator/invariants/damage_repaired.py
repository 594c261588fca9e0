"""Damage to a disk must be repaired in the end, before its node starts or after.

A machine breaks no promise if it refuses to start, or lacks entries that all others have expired.
Nor does one that was removed as it waited: members give nothing to others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.hosts.host import Host

PASSES = 2
"""Passes of the scrub: the first of them may have begun before the damage."""


class DamageRepaired:
    """Begins when the faults end."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._passes = {host.name: (host.boot, _passes(host) + PASSES) for host in hosts}

    def __call__(self) -> bool:
        """Whether all necessary repairs are done."""
        damaged = [host for host in self._hosts if host.damaged or host.damaged_parts]
        return all(self._repaired(host) for host in damaged)

    def _repaired(self, host: Host) -> bool:
        if host.node is None:
            waits = host.process is not None and not self._can_be_repaired(host)
            return host.damaged and (host.refuses or waits)
        boot, passes = self._passes[host.name]
        needed = passes if boot == host.boot else PASSES
        damage = host.node.scrubber.damage
        if any(index >= self._kept(host) for index in damage):
            # Rows of an entry are compared once the entry is whole again.
            self._passes[host.name] = (host.boot, _passes(host) + PASSES)
            return False
        return _passes(host) >= needed

    def _can_be_repaired(self, host: Host) -> bool:
        """Its peers give it each committed entry that they have. Once all of them have expired an
        entry, they refill it. One that damage keeps from running does not say what it has.
        """
        others = [each for each in self._hosts if each is not host]
        all_answer = not any(each.kept_from_running for each in others)
        return self._is_member(host) and (all_answer or self._kept(host) == 0)

    def _is_member(self, host: Host) -> bool:
        known = [
            each.node.core.configuration
            for each in self._hosts
            if each is not host and each.node is not None
        ]
        return any(host.name in {*found.voters, *found.learners} for found in known)

    def _kept(self, host: Host) -> int:
        """The first entry that another has: a node asks all of them in turn. One that is down and
        will be back may have all entries."""
        others = [each for each in self._hosts if each is not host and not each.kept_from_running]
        kept = [0 if each.node is None else each.node.store.first_index for each in others]
        return min(kept, default=sys.maxsize)


def _passes(host: Host) -> int:
    return 0 if host.node is None else host.node.scrubber.passes
