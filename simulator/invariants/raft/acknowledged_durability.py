"""Acknowledged messages are never lost (docs/safety.md, promise 1).

At its acknowledgement the entry is on the disks of a majority of the voters, so it survives a power
failure of all. Later every replica applies it at that index, and it is there in the end. A payload
is in the log at most once: a proposal is never made twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.hosts.durable_state import held_entry
from simulator.invariants.invariant import Invariant
from simulator.invariants.raft.configurations_seen import SeenConfigurations
from simulator.workload.raft_client import payload_number
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.hosts.host import Host

READ_BYTES = 8 << 10


class AcknowledgedIsDurable(Invariant):
    """Remembers where each payload is, and which of them were acknowledged."""

    def __init__(self, hosts: Sequence[Host], seen: SeenConfigurations) -> None:
        self._seen = seen
        self._hosts = hosts
        self._entries: dict[int, Entry] = {}  # by number of the payload
        self._acknowledged: dict[int, int] = {}  # number -> index

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        number = payload_number(entry)
        if number is None:
            return
        known = self._entries.setdefault(number, entry)
        if known.index != entry.index:
            raise Violation(
                f"{host.name} applies payload {number} as entry {entry.index}; "
                f"it was entry {known.index} before"
            )

    def acknowledged(self, host: Host, number: int) -> None:
        """See :class:`Invariant`."""
        entry = self._entries.get(number)
        if entry is None:
            raise Violation(f"{host.name} acknowledges payload {number}, which nobody applied")
        self._acknowledged[number] = entry.index
        size = host.segment_size
        holding = [each.name for each in self._hosts if held_entry(each, entry, size)]
        found = (self._seen.committed_at(entry.index), self._seen.of(host))
        if not any(members.is_majority(holding) for _index, members in found):
            raise Violation(
                f"{host.name} acknowledges payload {number}, and only the disks of {holding} "
                f"hold its entry {entry.index}"
            )

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        node = host.node
        if node is None:
            raise Violation(f"{host.name} is down though all is healed")
        held: dict[int, int] = {}
        # Damage is left now only in entries that all others have expired.
        first = max([node.store.first_index, *(index + 1 for index in node.scrubber.damage)])
        index = first
        while index <= node.store.last_index:
            for entry in node.store.read_entries(index, node.store.last_index, READ_BYTES):
                number = payload_number(entry)
                if number is not None:
                    held[number] = entry.index
                index = entry.index + 1
        for number, at in self._acknowledged.items():
            if at >= first and held.get(number) != at:
                raise Violation(
                    f"payload {number} was acknowledged as entry {at}; "
                    f"{host.name} holds it at {held.get(number)}"
                )
