"""Events of a host. An observer overrides those that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import Any, ClassVar, Generic, TypeVar

from dledger.wire.transport import Message
from store.log.entry import Entry


class ChangedPart(IntFlag):
    """Parts of a node that an event can change. A new process counts as changed in all."""

    COMMIT = 1
    """The commit index."""
    DURABLE = 2
    """Up to where the log is durable."""
    LOG = 4
    """The entries, and the configuration in them."""
    RAFT_STATE = 8
    """Term, role and vote."""
    ALL = 15


H = TypeVar("H")
"""The type of host that the observer needs."""


class HostObserver(Generic[H]):
    """Hears what happens on the hosts of a group. It may raise
    :class:`~simulator.engine.violation.Violation`."""

    step_parts: ClassVar[ChangedPart] = ChangedPart.ALL
    """:meth:`stepped` hears only of steps that changed one of these, and looks at nothing else."""
    sent_kinds: ClassVar[tuple[type[Message], ...]] = ()
    """Kinds of messages for :meth:`sends`; empty for all."""
    received_kinds: ClassVar[tuple[type[Message], ...]] = ()
    """Kinds of messages for :meth:`receives`; empty for all."""

    def booted(self, host: H) -> None:
        """A process begins. Its store is recovered."""

    def stepped(self, host: H) -> None:
        """An event was handled, and one of ``step_parts`` changed."""

    def sends(self, host: H, peer: str, message: Message) -> None:
        """A message is about to leave."""

    def receives(self, host: H, sender: str, message: Message) -> None:
        """A message has arrived, and the node is about to handle it."""

    def disk_replaced(self, host: H) -> None:
        """The machine has an empty disk, or an old copy of it: promises may be forgotten."""

    def restored(self, host: H, index: int, digest: bytes) -> None:
        """The state machine begins with the state after ``index``."""

    def applies(self, host: H, entry: Entry, digest: bytes) -> None:
        """The state machine applied an entry. ``digest`` covers all that it has applied."""

    def acknowledged(self, host: H, number: int) -> None:
        """The client got the answer that its payload with that number is committed."""

    def healed(self, host: H) -> None:
        """The faults are over, and the replicas agree with each other."""


def observers_of(
    observers: Sequence[HostObserver[Any]], told: str, kind: type[Message]
) -> Sequence[HostObserver[Any]]:
    """The observers (by ``sends`` or ``receives``) of a kind of message."""
    place = "sent_kinds" if told == "sends" else "received_kinds"
    return [
        each
        for each in observers
        if wants(each, told) and (not getattr(each, place) or kind in getattr(each, place))
    ]


def wants(observer: HostObserver[Any], told: str) -> bool:
    """Whether the observer overrides that method."""
    return getattr(type(observer), told) is not getattr(HostObserver, told)
