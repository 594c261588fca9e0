"""No election without the consent of a majority beforehand (pre-vote, thesis 9.6).

Otherwise a node that was cut off for a while, or that hears nobody, raises its term meanwhile and
so deposes a healthy leader, again and again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dledger.raft.messages import TimeoutNow, VoteRequest, VoteResponse
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from simulator.invariants.raft.configurations_seen import SeenConfigurations

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class PreVoteFirst(Invariant):
    """Remembers the pre-votes of each term."""

    sent_kinds = (VoteResponse, VoteRequest)
    received_kinds = (TimeoutNow,)

    def __init__(self, seen: SeenConfigurations) -> None:
        self._seen = seen
        self._agreed: dict[tuple[str, int], dict[str, None]] = {}
        self._ordered: dict[tuple[str, int], None] = {}

    def receives(self, host: Host, _sender: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, TimeoutNow):
            self._ordered[host.name, message.term + 1] = None

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        match message:
            case VoteResponse(term=term, granted=True, pre_vote=True):
                self._agreed.setdefault((peer, term), {})[host.name] = None
            case VoteRequest(term=term, ordered=True):
                if (host.name, term) not in self._ordered:
                    raise Violation(f"{host.name} campaigns in term {term}, ordered by nobody")
            case VoteRequest(term=term, pre_vote=False):
                agreed = [host.name, *self._agreed.get((host.name, term), ())]
                if not self._agreed_by_most(host, agreed):
                    raise Violation(
                        f"{host.name} campaigns in term {term} without having been asked for it "
                        f"by a majority, only by {agreed}"
                    )
            case _:
                pass

    def _agreed_by_most(self, host: Host, agreed: Collection[str]) -> bool:
        """A majority of its voters, or of the committed ones: they may change while its vote is
        written."""
        assert host.node is not None  # noqa: S101 - only processes speak
        _, newest = self._seen.of(host)
        _, committed = self._seen.committed_at(host.node.core.commit_index)
        return newest.is_majority(agreed) or committed.is_majority(agreed)
