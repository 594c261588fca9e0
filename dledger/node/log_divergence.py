"""Recognises a log that differs from the leader's, and has it refilled.

The chain CRC of every append covers all entries before it. So a follower whose log differs anywhere
cannot accept an append. It breaks the link, and meets the same error again. After a few times in a
row this is no passing fault, and it asks the other members for the entry that does not fit. If one
of them has the leader's entry, this node has diverged: it takes no more appends and is refilled
(:mod:`dledger.node.snapshot_receiver`). If they have another entry, the leader is wrong. Nothing
here can repair that, so it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.node.peer_calls import Answer, PeerCalls
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.raft.messages import AppendRequest
from dledger.raft.view import RaftView
from dledger.wire.service_messages import FetchRequest, FetchResponse
from store.log.entry import Entry

log = logging.getLogger(__name__)

REFUSALS = 5
"""Appends in a row that contradict our log; fewer may be a passing fault."""


class LogDivergence:
    """What one follower knows of it. On the event loop."""

    def __init__(self, *, core: RaftView, calls: PeerCalls, refill: Callable[[str], None]) -> None:
        """``refill`` begins to fetch the log of a peer."""
        self.found = False
        """Whether this node's log is another one than that of its group."""
        self._core = core
        self._refill = refill
        self._calls = calls
        self._refused = 0

    def accepted(self) -> None:
        """An append was right."""
        self._refused = 0

    def refused(self, sender: str, request: AppendRequest) -> None:
        """An append was refused; it may contradict our log."""
        if not (request.entries and self._differs(sender, request.entries[0])):
            return
        self._refused += 1
        if self._refused < REFUSALS or self.found:
            return
        self._refused = 0
        entry = request.entries[0]
        for peer in self._core.peers:
            if peer != sender:
                # mypy infers no type for a lambda that keeps the loop's variable by a default.
                self._calls.call(
                    peer,
                    lambda number: FetchRequest(number, entry.index, entry.index, PIECE_BYTES),
                    lambda answer, peer=peer: self._compare(sender, entry, peer, answer),  # type: ignore[misc]  # see above
                )

    def _differs(self, sender: str, entry: Entry) -> bool:
        """Whether the entry is none of ours, and comes from a member that leads."""
        core = self._core
        if sender != core.leader or not core.serves(sender):
            return False
        held = core.entry_cache.entry(entry.index)
        if held is not None:
            return held.chain_crc != entry.chain_crc
        return core.entry_cache.term_at(entry.index) != entry.term

    def _compare(self, leader: str, entry: Entry, peer: str, answer: Answer | None) -> None:
        if not isinstance(answer, FetchResponse) or not answer.entries or self.found:
            return
        node = self._core.node
        theirs = answer.entries[0]
        if (theirs.index, theirs.chain_crc) != (entry.index, entry.chain_crc):
            log.critical(
                "%s: entry %d of leader %s is not that of %s", node, entry.index, leader, peer
            )
            return
        self.found = True
        log.critical(
            "%(node)s has diverged: its log contradicts entry %(entry)d, which %(leader)s and "
            "%(peer)s hold",
            {"node": node, "entry": entry.index, "leader": leader, "peer": peer},
        )
        self._refill(leader)
