"""A node that hears a leader gives nobody else its vote (thesis 4.2.3).

Otherwise one node with a bad link keeps deposing a leader that all others hear. An election that
the leader ordered is another matter, and so is that leader's own election: it leads no more. So is
a vote that was given before, waits for the disk, and is asked for once more meanwhile (a frame that
came twice), perhaps in a later term. A leader that is no member by the voter's log keeps nobody
from an election. The voter's own clock says how long it has heard no leader: it may be faster than
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import AppendRequest, Heartbeat, VoteRequest, VoteResponse
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class LeaderStickiness(Invariant):
    """Remembers when each process heard its leader, and which candidates asked it meanwhile."""

    sent_kinds = (VoteResponse,)
    received_kinds = (Heartbeat, AppendRequest, VoteRequest)

    def __init__(self) -> None:
        self._heard: dict[tuple[str, int], tuple[int, float]] = {}  # term of the leader, own time
        self._refuse: dict[tuple[str, int, str, int, bool], str] = {}

    def receives(self, host: Host, sender: str, message: Message) -> None:
        """See :class:`Invariant`. The node has not seen the message yet."""
        core = host.node.core if host.node is not None else None
        if core is None:
            return
        process = (host.name, host.boot)
        match message:
            case Heartbeat(term=term) | AppendRequest(term=term):
                if term >= core.raft_state.term:
                    self._heard[process] = (term, host.own_time)
            case VoteRequest(term=term, pre_vote=pre_vote):
                leader_term, at = self._heard.get(process, (-1, 0.0))
                asked = (*process, sender, term, pre_vote)
                if (
                    not message.ordered
                    and term >= core.raft_state.term
                    and core.leader not in (None, sender)
                    and not core.raft_state.led_by_stranger
                    and leader_term == core.term
                    and host.own_time - at < core.config.election_seconds
                    and (pre_vote or (core.raft_state.term, core.raft_state.vote) != (term, sender))
                ):
                    self._refuse[asked] = core.leader or ""
                else:
                    self._refuse.pop(asked, None)

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, VoteResponse) and message.granted:
            asked = (host.name, host.boot, peer, message.term, message.pre_vote)
            if asked in self._refuse:
                raise Violation(
                    f"{host.name} votes for {peer} in term {message.term} "
                    f"though it hears {self._refuse[asked]}"
                )
