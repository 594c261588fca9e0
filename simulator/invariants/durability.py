"""Durable before visible: a node confirms only what the disk truly holds (docs/safety.md).

The simulated disk is asked what would survive a power failure at this very moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.messages import AppendAccepted, Message, VoteRequest, VoteResponse
from simulator.invariants.base import Invariant
from simulator.violation import Violation
from store.layout import segment_name, segment_start
from store.slotfile import SlotFile
from store.statefiles import VOTE_NAME, HardState

if TYPE_CHECKING:
    from simulator.host import Host
    from store.entry import Entry

DIRECTORY = "/data"


class DurableBeforeVisible(Invariant):
    """Checks votes, confirmations, and what a leader counts of its own."""

    def __init__(self) -> None:
        self._checked: dict[tuple[str, int], tuple[int, int]] = {}

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        match message:
            case VoteResponse(term=term, granted=True, pre_vote=False):
                self._check_vote(host, term, peer)
            case VoteRequest(term=term, pre_vote=False):
                self._check_vote(host, term, host.name)
            case AppendAccepted(match_index=index):
                self._check_log(host, index)
            case _:
                pass

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is not None:
            self._check_log(host, host.node.core.durable_index)

    def _check_vote(self, host: Host, term: int, candidate: str) -> None:
        disk = host.fs.copy()
        disk.power_loss(keep=0.0)
        path = f"{DIRECTORY}/state/{VOTE_NAME}"
        file = SlotFile.open(disk, path)
        saved = HardState.unpack(file.payload, path)
        file.close()
        # A later term binds as well: in this one the node will never vote again.
        if saved.term <= term and (saved.term, saved.vote) != (term, candidate):
            raise Violation(
                f"{host.name} votes for {candidate} in term {term}, its disk holds {saved}"
            )

    def _check_log(self, host: Host, index: int) -> None:
        node = host.node
        if node is None:
            return
        entry = node.core.log.entry(index)
        if entry is None:
            return
        claimed = (index, entry.chain_crc)
        before = self._checked.get((host.name, host.boot))
        if before == claimed:
            return
        self._checked[host.name, host.boot] = claimed
        first = index if before is None or index <= before[0] else before[0] + 1
        for place in range(first, index + 1):
            since = node.core.log.entry(place)
            if since is not None:
                self._check_entry(host, since)

    def _check_entry(self, host: Host, entry: Entry) -> None:
        assert host.node is not None  # noqa: S101 - only processes speak
        start = segment_start(entry.position, host.node.store.segment_size)
        on_disk = host.fs.durable_bytes(f"{DIRECTORY}/commitlog/{segment_name(start)}") or b""
        at = entry.position - start
        if on_disk[at : at + entry.size] != entry.data:
            raise Violation(
                f"{host.name} claims entry {entry.index} of term {entry.term} to be durable, "
                "and its disk does not hold it"
            )
