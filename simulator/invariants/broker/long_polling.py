"""A held pull is answered as soon as its broker has applied a message for it.

The check runs while no fault is active. Then an answer takes a round trip, and a pull that only its
deadline wakes takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from simulator.workload.history import Place
from store.log.entry import Entry, EntryKind
from store.message.batch import decode_batch

if TYPE_CHECKING:
    from simulator.hosts.host import Host

PROMPT_SECONDS = 0.25
"""Many round trips, and a fraction of the time for which a pull is held."""


class LongPollsAnswered(Invariant):
    """Follows some topics. ``now`` gives virtual seconds."""

    def __init__(self, topics: Sequence[str], now: Callable[[], float]) -> None:
        self.calm_since: float | None = None
        """The time after which there are no faults, and every client has found its leader again."""
        self.seen = 0
        """Pulls that were held, and answered with a message."""
        self._topics = topics
        self._now = now
        self._applied_at: dict[tuple[str, Place], float] = {}

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if self.calm_since is None or entry.kind is not EntryKind.DATA:
            return
        address, now = host.addresses[1], self._now()
        for run in decode_batch(entry.body).runs:
            if run.topic in self._topics:
                for offset in range(run.first_offset, run.first_offset + run.row_count):
                    self._applied_at[address, (run.topic, run.queue_id, offset)] = now

    def answered(self, consumer: str, address: str, place: Place, asked_at: float) -> None:
        """A pull that was asked then is answered with the message there, or with more."""
        if self.calm_since is None or asked_at < self.calm_since:
            return
        applied_at = self._applied_at.get((address, place))
        if applied_at is None or applied_at <= asked_at:
            return
        self.seen += 1
        late = self._now() - applied_at
        if late > PROMPT_SECONDS:
            raise Violation(
                f"{consumer} is given {place} {late:.3f} s after {address} had applied it, "
                f"though its pull was held there"
            )
