"""What an invariant is told; each overrides what concerns it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, ClassVar

from dledger.wire.transport import Message
from store.log.entry import Entry

if TYPE_CHECKING:
    from simulator.faults.schedule import Action
    from simulator.hosts.host import Host


class ChangedPart(IntFlag):
    """What of a node an event can change. A new process has changed in all parts."""

    COMMIT = 1
    """The commit index."""
    DURABLE = 2
    """How far the log is durable."""
    LOG = 4
    """The entries, and the configuration that they say."""
    RAFT_STATE = 8
    """Term, role and vote."""
    ALL = 15


class Invariant:
    """Watches all hosts of a cluster. Raises :class:`~simulator.engine.violation.Violation`."""

    step_parts: ClassVar[ChangedPart] = ChangedPart.ALL
    """:meth:`stepped` is told of steps that changed one of these, and looks at nothing else."""
    sent_kinds: ClassVar[tuple[type[Message], ...]] = ()
    """What :meth:`sends` is told of; of every message, if none is named."""
    received_kinds: ClassVar[tuple[type[Message], ...]] = ()
    """What :meth:`receives` is told of; likewise."""

    def booted(self, host: Host) -> None:
        """A process begins, its store recovered."""

    def stepped(self, host: Host) -> None:
        """An event was handled, and something of the node changed (``step_parts``)."""

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """A message is about to leave."""

    def receives(self, host: Host, sender: str, message: Message) -> None:
        """A message has arrived, and the node is about to handle it."""

    def disk_replaced(self, host: Host) -> None:
        """The machine has an empty disk, or an old copy of it: promises may be forgotten."""

    def acted(self, action: Action) -> None:
        """Something was done to the cluster from outside."""

    def restored(self, host: Host, index: int, digest: bytes) -> None:
        """The state machine begins with the state after ``index``."""

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """The state machine applied an entry; ``digest`` covers all it ever applied."""

    def acknowledged(self, host: Host, number: int) -> None:
        """The client was told that its payload of that number is committed."""

    def healed(self, host: Host) -> None:
        """The run is over, its faults too, and the replicas agree with each other."""


def observers_of(
    invariants: Sequence[Invariant], told: str, kind: type[Message]
) -> Sequence[Invariant]:
    """Those to be told (``sends`` or ``receives``) of a kind of message."""
    place = "sent_kinds" if told == "sends" else "received_kinds"
    return [
        each
        for each in invariants
        if wants(each, told) and (not getattr(each, place) or kind in getattr(each, place))
    ]


def wants(invariant: Invariant, told: str) -> bool:
    """Whether it overrides that method."""
    return getattr(type(invariant), told) is not getattr(Invariant, told)
