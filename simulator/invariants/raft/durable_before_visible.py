"""Durable before visible: a node confirms only what the disk truly holds (docs/safety.md).

The simulated disk says what would survive a power failure at this moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import AppendAccepted, HeartbeatResponse, VoteRequest, VoteResponse
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.hosts.durable_state import hard_state, holds_entry
from simulator.invariants.invariant import ChangedPart, Invariant
from store.state.hard_state import HardState

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class DurableBeforeVisible(Invariant):
    """Checks terms, votes, confirmations, and entries that a node counts as durable on its own
    disk."""

    step_parts = ChangedPart.DURABLE | ChangedPart.LOG
    sent_kinds = (VoteResponse, VoteRequest, AppendAccepted, HeartbeatResponse)

    def __init__(self) -> None:
        self._checked: dict[tuple[str, int], tuple[int, int]] = {}  # last index, its chain CRC

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self.stepped(host)

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is not None:
            self._check_log(host, host.node.core.durable_index)

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        match message:
            case VoteResponse(term=term, granted=True, pre_vote=False):
                self._check_vote(host, term, peer)
            case VoteRequest(term=term, pre_vote=False):
                self._check_vote(host, term, host.name)
            case AppendAccepted(term=term, match_index=index):
                self._check_confirmation(host, term, index)
            case HeartbeatResponse(term=term, match_index=index) if index >= 0:
                self._check_confirmation(host, term, index)
            case _:
                pass

    def _check_vote(self, host: Host, term: int, candidate: str) -> None:
        saved = hard_state(host)
        # A later term on the disk keeps it from voting again in this one just as well.
        if saved is None or (saved.term <= term and saved != HardState(term, candidate)):
            raise Violation(
                f"{host.name} votes for {candidate} in term {term}, its disk holds {saved}"
            )

    def _check_confirmation(self, host: Host, term: int, index: int) -> None:
        saved = hard_state(host)
        if saved is None or saved.term < term:
            raise Violation(
                f"{host.name} confirms entry {index} in term {term}, its disk holds {saved}"
            )
        self._check_log(host, index)

    def _check_log(self, host: Host, index: int) -> None:
        """Each entry is looked at once, unless another took its place."""
        assert host.node is not None  # noqa: S101 - only processes speak
        log = host.node.core.entry_cache
        checked, chain_crc = self._checked.get((host.name, host.boot), (-1, 0))
        held = log.entry(checked)
        if checked > log.last_index or (held is not None and held.chain_crc != chain_crc):
            checked = -1
        if index <= checked:
            return
        for place in range(max(checked + 1, log.cached_from), index + 1):
            entry = log.entry(place)
            if entry is None:
                continue
            self._checked[host.name, host.boot] = (place, entry.chain_crc)
            if not holds_entry(host, entry, host.segment_size):
                raise Violation(
                    f"{host.name} claims entry {place} of term {entry.term} to be durable, "
                    "and its disk does not hold it"
                )
