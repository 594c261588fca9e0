"""The interface of the state machine, whose state is a function of the committed log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dledger.raft.raft_state import Role
from store.log.entry import Entry


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as this node knows it. ``serving``: this node does, and may propose."""

    role: Role
    term: int
    leader: str | None
    serving: bool


class CheckpointWork(Protocol):
    """One checkpoint in the making."""

    @property
    def state(self) -> bytes:
        """The state as it was when the checkpoint began. It may take long; any thread."""

    def flush(self) -> None:
        """Makes the derived files durable up to that state. Blocks; runs off the event loop."""

    def finish(self, *, saved: bool) -> None:
        """Called on the event loop at the end; ``saved``: whether the checkpoint counts."""


class LongReadError(Exception):
    """The state machine must read for long before it can apply the entry."""

    def __init__(self, read: Callable[[], bool]) -> None:
        """``read`` reads a piece, and returns whether it was the last one. It blocks, on the
        executor for reads, and raises :class:`~store.errors.StoreError`: then the entry comes
        again, too."""
        self.read = read
        super().__init__("it must read for long first")


class StateMachine(Protocol):
    """Applied by :class:`~dledger.node.node.Node`, always on the event loop."""

    def restore(self, state: bytes | None) -> None:
        """Called once, before anything else, with the state of a checkpoint; None for an empty
        log."""

    def apply(self, entry: Entry) -> None:
        """Applies the next committed entry, of any kind; each comes exactly once after
        :meth:`restore`.

        With nothing applied, it raises :class:`~store.errors.DerivedDamageError` if it needs what
        is damaged and will be repaired, :class:`~store.errors.DiskFullError` if it needs a file
        that cannot be opened now, and :class:`LongReadError`. The entry then comes again.
        """

    def begin_checkpoint(self) -> CheckpointWork:
        """Captures the state now."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """Role, term, leader or readiness changed."""
