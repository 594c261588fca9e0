"""The proposals of this node as leader, and who waits until they are applied."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dledger.errors import (
    InvariantError,
    NoRoomError,
    NotServingError,
    OutcomeUnknownError,
    ProposeError,
    SafetyProperty,
)
from dledger.histogram import Histogram
from dledger.raft.core import Raft
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry


@dataclass(slots=True)
class _Proposal:
    index: int
    term: int
    proposed_at: float
    done: Callable[[ProposeError | None], None]


class Proposals:
    """Of one node, in the order of their entries. On the event loop."""

    def __init__(
        self,
        *,
        core: Raft,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        serving: Callable[[], bool],
        has_room: Callable[[int], bool],
        no_room: Callable[[int], NoRoomError],
    ) -> None:
        """``serving`` says whether this node takes proposals, ``has_room`` whether the disk takes
        so many bytes more, and ``no_room`` why it does not. ``clock`` gives seconds that never run
        backward."""
        self.commit_seconds = Histogram()
        """From the proposal of an entry until it is committed and applied here."""
        self._clock = clock
        self._core = core
        self._serving = serving
        self._has_room = has_room
        self._no_room = no_room
        self._loop = loop
        self._waiting: deque[_Proposal] = deque()

    def add(
        self,
        body_size: int,
        build: Callable[[int], Sequence[Bytes]],
        done: Callable[[ProposeError | None], None],
    ) -> int:
        """See :meth:`dledger.node.node.Node.propose`; the caller takes the core's Ready."""
        core = self._core
        core.check_may_propose()
        if not self._serving():
            raise NotServingError
        size = HEADER_SIZE + body_size
        position = core.next_position(size)
        if not self._has_room(size):
            raise self._no_room(size)
        entry = build_entry(
            EntryKind.DATA,
            core.entry_cache.last_index + 1,
            core.raft_state.term,
            position,
            core.entry_cache.chain_crc,
            build(position),
        )
        if entry.size != size:
            raise InvariantError(
                SafetyProperty.LOG_MATCHING,
                f"an entry of {entry.size} bytes was announced as {size}",
            )
        self._waiting.append(_Proposal(entry.index, entry.term, self._clock(), done))
        core.propose(entry, self._loop.time())
        return entry.index

    def applied(self, entry: Entry, applied_at: float) -> None:
        """Answers who waited for that entry; it was applied at ``applied_at``, by the clock."""
        waiting = self._waiting
        while waiting and waiting[0].index <= entry.index:
            proposal = waiting.popleft()
            # One append of a new leader can depose this one, replace its entries and commit, all in
            # one event. So the entry at the index may be another leader's.
            if (proposal.index, proposal.term) == (entry.index, entry.term):
                self.commit_seconds.observe(applied_at - proposal.proposed_at)
                proposal.done(None)
            else:
                proposal.done(OutcomeUnknownError(proposal.index, proposal.term))

    def drop(self) -> None:
        """The leadership or the node has ended: the outcome of the proposals is unknown."""
        dropped, self._waiting = self._waiting, deque()
        for proposal in dropped:
            proposal.done(OutcomeUnknownError(proposal.index, proposal.term))
