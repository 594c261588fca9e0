"""Messages between nodes outside the Raft protocol: health reports, and the bytes of logs.

They have no term, and count for nothing in elections and commits. A request has a number that its
answer repeats, so a late answer is not taken for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from store.log.entry import Entry


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of the sender. ``room``: its disk has room for messages. ``prompt``: the disk
    answers in time, and the sender does not stop. ``whole``: everything below its commit index is
    there, and is the group's."""

    room: bool
    prompt: bool
    whole: bool

    @property
    def healthy(self) -> bool:
        """Whether the sender may lead."""
        return self.room and self.prompt and self.whole

    @property
    def unhealthy_reason(self) -> str:
        """For people."""
        reasons = (
            (self.room, "the disk is full"),
            (self.prompt, "the disk does not answer, or the node stops"),
            (self.whole, "something in the log is damaged, or the state is wrong"),
        )
        return ", ".join(reason for well, reason in reasons if not well)


class FetchStatus(IntEnum):
    """Why an answer has no entries, or that it has some."""

    ENTRIES = 0
    EXPIRED = 1
    BUSY = 2
    MISSING = 3


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Asks for committed entries from ``first_index`` to ``last_index``, as many as fit."""

    number: int
    first_index: int
    last_index: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Entries as they lie in the sender's log, or why there are none.

    ``first_index`` is the first entry that the sender retains.
    """

    number: int
    status: FetchStatus
    first_index: int
    entries: tuple[Entry, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SnapshotNeededNotice:
    """A leader tells a follower that its log ends before the ``first_index`` that is retained."""

    first_index: int


@dataclass(frozen=True, slots=True)
class RemovedNotice:
    """A member tells a peer that it is no member, by the committed entry of that ``index``."""

    index: int


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Asks for a piece of a checkpoint file of the receiver, from byte ``offset`` on.

    ``index`` is the checkpoint of which earlier pieces were got, -1 for the newest.
    """

    number: int
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class CheckpointResponse:
    """A piece of a checkpoint file, and where the log below it begins.

    ``index`` names the checkpoint; -1 says that there is none, or no more that one. ``size`` is
    that of the whole file. The log that leads up to it begins with ``first_index`` at
    ``first_position``.
    """

    number: int
    index: int
    first_index: int
    first_position: int
    size: int
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StateReport:
    """The digests of the sender's state after the entry of that ``index``; what they are is the
    state machine's. Sent only to who knows :data:`~dledger.wire.features.STATE_PROOF`."""

    index: int
    digests: bytes


ServiceMessage: TypeAlias = (
    HealthReport
    | StateReport
    | FetchRequest
    | FetchResponse
    | SnapshotNeededNotice
    | CheckpointRequest
    | CheckpointResponse
    | RemovedNotice
)
