"""Requests that wait to become one log entry, and their waiters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeAlias

from broker.state.commands import Command, PutTopic
from broker.state.deduplication_window import EntryPosition
from dledger.errors import ProposeError
from store.log.entry import HEADER_SIZE
from store.message.batch import QueueRun
from store.message.record import PendingMessage

_SIZE = attrgetter("size")
_COMMAND_BYTES = 96  # more than the numbers of any command; names are added

Completion: TypeAlias = Callable[[ProposeError | None], None]
"""Called once: with None when committed and applied, else with the refusal or an unknown
outcome."""


class StoredEarlier(NamedTuple):
    """Where the first try of a request was stored."""

    host: bytes
    """The broker that stored it, as in records: 4 bytes of IPv4, the port as i32."""

    queue_id: int


class Waiter(Protocol):
    """Waits until messages are stored. Exactly one of the two methods is called, once."""

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        """Committed and applied; ``positions`` are those of the records in the commit log."""

    def failed(self, error: ProposeError) -> None:
        """Not stored; with :class:`~dledger.errors.OutcomeUnknownError` perhaps stored."""


class SendWaiter(Waiter, Protocol):
    """Waits for a request that may be a retry."""

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        """As for any waiter. ``earlier`` is given if an earlier try was stored instead of this
        one."""


class _Nobody:
    """The waiter of messages for which nobody waits."""

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        pass

    def failed(self, error: ProposeError) -> None:
        pass


NOBODY: Waiter = _Nobody()


class NewMessages(NamedTuple):
    """The messages of a request for one queue, and the topics that it creates."""

    topic: str
    queue_id: int
    messages: Sequence[PendingMessage]
    creates: Sequence[PutTopic] = ()


class QueueMessages(NamedTuple):
    """Messages for one queue, and their waiter."""

    topic: str
    queue_id: int
    messages: Sequence[PendingMessage]
    waiter: Waiter = NOBODY


class PendingQueue:
    """The messages of one queue in a batch, and how many belong to each waiter."""

    __slots__ = ("messages", "waiters")

    def __init__(self) -> None:
        self.messages: list[PendingMessage] = []
        self.waiters: list[tuple[Waiter, int]] = []


class PendingBatch:
    """The content of a future entry. ``runs`` and its position are known once it is proposed."""

    __slots__ = (
        "bytes",
        "commands",
        "completions",
        "message_bytes",
        "place",
        "queues",
        "requests",
        "runs",
    )

    def __init__(self) -> None:
        self.bytes = 0
        self.message_bytes = 0
        """The exact size in bytes of the records and rows."""
        self.queues: defaultdict[tuple[str, int], PendingQueue] = defaultdict(PendingQueue)
        self.commands: list[Command] = []
        self.completions: list[Completion] = []
        self.requests: list[int] = []
        """The key hash of the first message of each request."""
        self.runs: list[QueueRun] = []
        self.place = EntryPosition()

    def __bool__(self) -> bool:
        return bool(self.queues or self.commands or self.completions)

    def succeed(self) -> None:
        """Tells all waiters that the entry is applied."""
        position = self.place.position + HEADER_SIZE
        for run, queue in zip(self.runs, self.queues.values(), strict=True):
            messages = run.messages
            if len(messages) == 1 == len(queue.waiters):  # as a rule, if there are many queues
                ((waiter, _one),) = queue.waiters
                waiter.stored(run.first_offset, (position,))
                position += messages[0].size
                continue
            positions = list(accumulate(map(_SIZE, messages), initial=position))
            position = positions.pop()
            taken = 0
            for waiter, count in queue.waiters:
                waiter.stored(run.first_offset + taken, positions[taken : taken + count])
                taken += count
        for completion in self.completions:
            completion(None)

    def fail(self, error: ProposeError) -> None:
        """Tells all waiters that there is no such entry, or that its outcome is unknown."""
        for queue in self.queues.values():
            for waiter, _count in queue.waiters:
                waiter.failed(error)
        for completion in self.completions:
            completion(error)


def command_bytes(command: Command) -> int:
    """An upper bound of the bytes of a command in an entry."""
    names = sum(len(field) for field in command if isinstance(field, str | bytes))
    return _COMMAND_BYTES + 4 * names
