"""What the core asks its driver to do, collected until the driver takes it.

The order inside one Ready does not matter, with one exception on which every promise rests: the
messages in ``write.then`` may leave only when that write is durable. All other messages say nothing
about the disk and leave at once, so a slow disk does not delay a heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dledger.raft.messages import Envelope, RaftMessage
from store.log.entry import Entry


@dataclass(slots=True)
class Write:
    """One change of what is on disk, to be made in this order and synced: vote, cut, entries.

    ``id`` counts up for ever. Completions name it, so that an old completion cannot be taken for
    a later write at the same index (the ABA race of asynchronous log writes).
    """

    id: int
    hard_state: tuple[int, str] | None = None  # term, vote ("" for none)
    truncate_from: int | None = None
    entries: list[Entry] = field(default_factory=list)
    then: list[Envelope] = field(default_factory=list)


@dataclass(slots=True)
class Read:
    """Entries for ``peer``, from ``first_index`` on, that are no longer in memory."""

    peer: str
    first_index: int
    last_index: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """The answer to a request for a read index: None if nobody could confirm one."""

    id: int
    index: int | None


@dataclass(slots=True)
class Ready:
    """One bundle: send, write, read; and the read indexes that became known."""

    messages: list[Envelope] = field(default_factory=list)
    write: Write | None = None
    reads: Sequence[Read] = ()
    read_indexes: Sequence[ReadIndex] = ()


NOTHING = Ready()
"""Of an event that asks for nothing, as most confirmations are; one for all, so never changed."""


class ReadyBuilder:
    """Where the parts of the core put what is to be done."""

    def __init__(self) -> None:
        self._effects: Ready | None = None
        self._last_write_id = 0

    def _bundle(self) -> Ready:
        if self._effects is None:
            self._effects = Ready()
        return self._effects

    def send(self, to: str, message: RaftMessage) -> None:
        """Leaves at once."""
        self._bundle().messages.append(Envelope(to, message))

    def send_after_write(self, to: str, message: RaftMessage) -> None:
        """Leaves when everything asked to be written so far in this bundle is durable."""
        self.write().then.append(Envelope(to, message))

    def write(self) -> Write:
        """The bundle's write, begun now if there is none yet."""
        bundle = self._bundle()
        if bundle.write is None:
            self._last_write_id += 1
            bundle.write = Write(self._last_write_id)
        return bundle.write

    def read(self, peer: str, first_index: int, last_index: int, bytes_max: int) -> None:
        """Asks for entries from the disk."""
        bundle = self._bundle()
        bundle.reads = [*bundle.reads, Read(peer, first_index, last_index, bytes_max)]

    def read_index(self, number: int, index: int | None) -> None:
        """Answers a request of this node for a read index."""
        bundle = self._bundle()
        bundle.read_indexes = [*bundle.read_indexes, ReadIndex(number, index)]

    def take(self) -> Ready:
        """The Ready of all since the last call."""
        taken, self._effects = self._effects, None
        return NOTHING if taken is None else taken
