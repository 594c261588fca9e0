"""Logs that differ meet in few steps: a conflict skips whole terms (thesis 5.3).

A follower whose entries of one term all conflict is asked about two of them at most. Otherwise a
long tail of a dead leadership would take a round trip for each entry. A leader that knows already
where the logs meet asks no question: its append may be overtaken on the way and refused too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dledger.raft.messages import AppendRejected, AppendRequest
from dledger.raft.progress import ProgressState
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host

DISPATCHES_MAX = 3

_Leadership: TypeAlias = tuple[str, int, str]
"""The follower, the term, and the leader."""


class FewConflictProbes(Invariant):
    """Follows how each follower's rejections walk down one of its terms."""

    sent_kinds = (AppendRequest, AppendRejected)

    def __init__(self) -> None:
        self._asked: dict[_Leadership, int] = {}
        self._walks: dict[_Leadership, tuple[int, int, int]] = {}  # index, term, steps

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        if isinstance(message, AppendRequest):
            progress = host.node.core.progress.get(peer)
            if progress is not None and progress.state is ProgressState.PROBE:
                self._asked[peer, message.term, host.name] = message.prev_index
        elif isinstance(message, AppendRejected):
            self._refuses(host, peer, message)

    def _refuses(self, host: Host, peer: str, message: AppendRejected) -> None:
        index = message.rejected_index
        leadership = (host.name, message.term, peer)
        if host.node is None or self._asked.get(leadership) != index:
            return
        held = host.node.core.entry_cache.term_at(index)
        before, term, steps = self._walks.get(leadership, (-1, -1, 0))
        walks_on = held is not None and held == term and index < before
        steps = steps + 1 if walks_on else 0
        self._walks[leadership] = (index, -1 if held is None else held, steps)
        if steps >= DISPATCHES_MAX:
            raise Violation(
                f"{peer} walks down the log of {host.name} entry by entry: at {index} now, "
                f"for {steps} steps within term {held}"
            )
