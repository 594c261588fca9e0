"""State-machine safety (thesis, figure 3.2): every node applies the same, in the same order, once.

The state after an index is compared too: a checkpoint restores exactly the applied state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class StateMachineSafety(Invariant):
    """Remembers the state after every index, and what each process applies next."""

    def __init__(self) -> None:
        self._digests: dict[int, bytes] = {}
        self._next: dict[tuple[str, int], int] = {}

    def restored(self, host: Host, index: int, digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._next[host.name, host.boot] = index + 1
        if index >= 0 and self._digests.get(index) != digest:
            raise Violation(f"{host.name} starts with a state after {index} that nobody had")

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """See :class:`Invariant`."""
        expected = self._next[host.name, host.boot]
        if entry.index != expected:
            raise Violation(f"{host.name} applies {entry.index}, the next is {expected}")
        self._next[host.name, host.boot] = expected + 1
        if entry.index and entry.index - 1 not in self._digests:
            raise Violation(f"{host.name} applies {entry.index}, nobody applied what is before")
        known = self._digests.setdefault(entry.index, digest)
        if known != digest:
            raise Violation(f"{host.name} has another state after {entry.index}")

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if self._next[host.name, host.boot] != len(self._digests):
            raise Violation(
                f"{host.name} applied up to {self._next[host.name, host.boot] - 1}, "
                f"others up to {len(self._digests) - 1}"
            )
