"""Why a proposal was refused, a peer's message dropped, or the node stopped.

``retriable`` says whether the same request may succeed later or on another node, so that callers
need no list of their own.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class DLedgerError(Exception):
    """Base of every error that this layer raises on purpose."""

    retriable: ClassVar[bool] = False


class ProposeError(DLedgerError):
    """A proposal was refused, or its outcome cannot be told."""

    retriable = True


class NotLeaderError(ProposeError):
    """This node does not lead the group; nothing was written."""

    def __init__(self, leader: str | None) -> None:
        self.leader = leader
        super().__init__(f"not the leader; the leader is {leader or 'not known yet'}")


class NotServingError(ProposeError):
    """The leader has not yet applied the first entry of its term; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the new leader has not applied the first entry of its term yet")


class BusyError(ProposeError):
    """Too much waits already; nothing was written. The same request may succeed later."""

    def __init__(
        self,
        waiting: int,
        limit: int,
        description: str = "bytes wait for a majority or for the leader's disk",
    ) -> None:
        """``description``: of what there are ``waiting`` now, and what it waits for."""
        super().__init__(f"{waiting} {description}, the limit is {limit}")


class TransferringError(ProposeError):
    """The leadership is being transferred; nothing was written."""

    def __init__(self, target: str) -> None:
        super().__init__(f"the leadership is being transferred to {target}")


class ChangeRefusedError(ProposeError):
    """A change of the members, or of the leader, cannot be made now; nothing was written."""

    retriable = False


class ReadUnconfirmedError(ProposeError):
    """No leader confirmed in time that what is here is the newest; nothing was read."""

    def __init__(self) -> None:
        super().__init__("no leader confirmed in time that the answer would be the newest")


class NoRoomError(ProposeError):
    """The disk has no room for the entry; nothing was written."""

    def __init__(self, size: int, why: str = "") -> None:
        super().__init__(f"the disk has no room for an entry of {size} bytes{why and f': {why}'}")


class OutcomeUnknownError(ProposeError):
    """The leadership ended before a majority confirmed the entry. It may be kept or dropped."""

    def __init__(self, index: int, term: int) -> None:
        self.index = index
        self.term = term
        super().__init__(f"leadership of term {term} ended before entry {index} was confirmed")


class ReopenError(DLedgerError):
    """The node must be opened again with what is on its disk now. This is no failure."""


class SnapshotInstalledError(ReopenError):
    """The node got another log from its peers, or had no room on the disk to finish that."""


class StateDivergedError(ReopenError):
    """The state was not that of the group, and is taken again from the log."""


TEXT_MAX = 300
"""Characters of what a peer did wrong, which may repeat what it said."""


class PeerError(DLedgerError):
    """A peer broke the protocol, or its log contradicts ours: its message is dropped.

    It is one line of bounded length, whatever the peer said.
    """

    def __init__(self, reason: str) -> None:
        told = reason if len(reason) <= TEXT_MAX else f"{reason[:TEXT_MAX]}..."
        super().__init__(told if told.isprintable() else ascii(told))


class DamagedFrameError(PeerError):
    """A frame arrived with other bytes than were sent."""

    def __init__(self, size: int, found: int, expected: int) -> None:
        super().__init__(
            f"a peer frame of {size} bytes is damaged: its CRC is {found:08x}, not {expected:08x}"
        )


class SafetyProperty(Enum):
    """What nodes promise, in the words of Raft's thesis (figure 3.2) where it has them."""

    ONE_LEADER = "election safety"
    """A term has one leader: terms never go back, and a vote binds."""
    LOG_MATCHING = "log matching"
    """Logs that have the same entry have the same entries before it."""
    COMMITTED = "committed for ever"
    """What is committed is held, and stays."""
    DURABLE = "durable before visible"
    """What counts as durable is on the disk."""
    SAME_STATE = "state machine safety"
    """All replicas apply the same, and come to the same state."""


class InvariantError(DLedgerError):
    """A rule that protects data is broken, so the node must stop. The text begins with the promise
    that would be broken next.
    """

    def __init__(self, promise: SafetyProperty, reason: str) -> None:
        self.promise = promise
        super().__init__(f"{promise.value}: {reason}")
