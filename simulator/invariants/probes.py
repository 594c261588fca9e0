"""Logs that differ meet in few steps: a conflict skips whole terms (thesis 5.3).

A follower whose entries of one term all conflict is asked about two of them at most; else a long
tail of a dead leadership would take a round trip for each entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.messages import AppendRejected, Message
from simulator.invariants.base import Invariant
from simulator.violation import Violation

if TYPE_CHECKING:
    from simulator.host import Host

STEPS_MAX = 3


class FewProbes(Invariant):
    """Follows how each follower's rejections walk down one of its terms."""

    def __init__(self) -> None:
        self._walks: dict[tuple[str, int, str], tuple[int, int, int]] = {}  # index, term, steps

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if not isinstance(message, AppendRejected) or host.node is None:
            return
        index = message.rejected_index
        held = host.node.core.log.term_at(index)
        leadership = (host.name, message.term, peer)
        before, term, steps = self._walks.get(leadership, (-1, -1, 0))
        walks_on = held is not None and held == term and index < before
        steps = steps + 1 if walks_on else 0
        self._walks[leadership] = (index, -1 if held is None else held, steps)
        if steps >= STEPS_MAX:
            raise Violation(
                f"{peer} walks down the log of {host.name} entry by entry: at {index} now, "
                f"for {steps} steps within term {held}"
            )
