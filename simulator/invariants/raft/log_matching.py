"""Log matching (thesis, figure 3.2): same index and term means the same log up to there.

The chain CRC of an entry covers all entries before it, so one comparison an entry is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import AppendRequest
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class LogMatching(Invariant):
    """Remembers the chain of every entry ever seen, by index and term."""

    step_parts = ChangedPart.LOG
    sent_kinds = (AppendRequest,)

    def __init__(self) -> None:
        self._chains: dict[tuple[int, int], int] = {}
        self._looked: dict[tuple[str, int], tuple[int, int]] = {}

    def sends(self, host: Host, _peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, AppendRequest):
            for entry in message.entries:
                self._see(host.name, entry)

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        log = host.node.core.entry_cache if host.node is not None else None
        if log is None or log.last_index < 0:
            return
        last = (log.last_index, log.chain_crc)
        if self._looked.get((host.name, host.boot)) == last:
            return
        self._looked[host.name, host.boot] = last
        entry = log.entry(log.last_index)
        if entry is not None:
            self._see(host.name, entry)

    def _see(self, who: str, entry: Entry) -> None:
        known = self._chains.setdefault((entry.index, entry.term), entry.chain_crc)
        if known != entry.chain_crc:
            raise Violation(
                f"{who} has another log below entry {entry.index} of term {entry.term}: "
                f"chain {entry.chain_crc:08x}, elsewhere {known:08x}"
            )
