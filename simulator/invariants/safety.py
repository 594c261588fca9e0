"""State-machine safety (thesis, figure 3.2): one entry for an index, on every node, for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.invariants.base import Invariant
from simulator.violation import Violation
from store.entry import Entry

if TYPE_CHECKING:
    from simulator.host import Host


class StateMachineSafety(Invariant):
    """Remembers the chain and term of every applied entry, and the state after it."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, int]] = []  # by index: chain CRC, term
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
        identity = (entry.chain_crc, entry.term)
        if entry.index < len(self.applied):
            if self.applied[entry.index] != identity:
                raise Violation(
                    f"{host.name} applies entry {entry.index} of term {entry.term}, "
                    f"elsewhere it is of term {self.applied[entry.index][1]}"
                )
        elif entry.index == len(self.applied):
            self.applied.append(identity)
        else:
            raise Violation(f"{host.name} applies {entry.index}, nobody applied what is before")
        known = self._digests.setdefault(entry.index, digest)
        if known != digest:
            raise Violation(f"{host.name} has another state after {entry.index}")
