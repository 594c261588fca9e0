"""A node's term never falls, across restarts too, and it votes once in a term (thesis 3.4, 3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import AppendAccepted, VoteRequest, VoteResponse
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class TermsAndVotes(Invariant):
    """A vote or a confirmation in a term binds a node for ever."""

    sent_kinds = (VoteResponse, VoteRequest, AppendAccepted)

    def __init__(self) -> None:
        self._promised: dict[str, int] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._terms: dict[tuple[str, int], int] = {}

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self.stepped(host)

    def disk_replaced(self, host: Host) -> None:
        """See :class:`Invariant`. On the new disk it is another voter, by its incarnation."""
        self._promised.pop(host.name, None)
        for voter, term in [each for each in self._votes if each[0] == host.name]:
            del self._votes[voter, term]

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        match message:
            case VoteResponse(term=term, granted=True, pre_vote=False):
                self._vote(host.name, term, peer)
            case VoteRequest(term=term, pre_vote=False):
                self._vote(host.name, term, host.name)
            case AppendAccepted(term=term):
                self._promise(host.name, term)
            case _:
                pass

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        raft_state, name, process = host.node.core.raft_state, host.name, (host.name, host.boot)
        term = raft_state.term
        if term < self._promised.get(name, 0):
            raise Violation(
                f"{name} is in term {term} but has spoken in term {self._promised[name]}"
            )
        if term < self._terms.get(process, 0):
            raise Violation(f"the term of {name} falls to {term}")
        self._terms[process] = term
        vote = self._votes.get((name, term))
        if vote is not None and raft_state.vote != vote:
            raise Violation(
                f"{name} voted for {vote} in term {term} and takes its vote "
                f"for {raft_state.vote or 'not given'}"
            )

    def _vote(self, voter: str, term: int, candidate: str) -> None:
        self._promise(voter, term)
        before = self._votes.setdefault((voter, term), candidate)
        if before != candidate:
            raise Violation(f"{voter} votes for {before} and {candidate} in term {term}")

    def _promise(self, node: str, term: int) -> None:
        self._promised[node] = max(self._promised.get(node, 0), term)
