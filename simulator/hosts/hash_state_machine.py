"""The state machine of the simulated hosts: a hash chain over all applied entries."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgpack

from dledger.node.state_machine import Leadership
from store.log.entry import Entry, EntryKind


class HashChainCheckpoint:
    """A captured state; there are no derived files to flush."""

    def __init__(self, state: bytes) -> None:
        self.state = state

    def flush(self) -> None:
        """See :class:`dledger.node.state_machine.CheckpointWork`."""

    def finish(self, *, saved: bool) -> None:
        """See :class:`dledger.node.state_machine.CheckpointWork`."""


class HashChainStateMachine:
    """Applies payloads by hashing them, and calls its observers."""

    def __init__(
        self,
        applied: Callable[[Entry, bytes], None],
        leadership: Callable[[Leadership], None],
        restored: Callable[[int, bytes], None],
    ) -> None:
        self._tell_applied = applied
        self._tell_leadership = leadership
        self._tell_restored = restored
        self.index = -1
        self.digest = b""

    def restore(self, state: bytes | None) -> None:
        """See :class:`dledger.node.state_machine.StateMachine`."""
        if state is not None:
            self.index, self.digest = msgpack.unpackb(state)
        self._tell_restored(self.index, self.digest)

    def apply(self, entry: Entry) -> None:
        """See :class:`dledger.node.state_machine.StateMachine`."""
        body = bytes(entry.body) if entry.kind is EntryKind.DATA else b""
        self.digest = blake2b(self.digest + body, digest_size=8).digest()
        self.index = entry.index
        self._tell_applied(entry, self.digest)

    def begin_checkpoint(self) -> HashChainCheckpoint:
        """See :class:`dledger.node.state_machine.StateMachine`."""
        return HashChainCheckpoint(msgpack.packb((self.index, self.digest)))

    def leadership_changed(self, leadership: Leadership) -> None:
        """See :class:`dledger.node.state_machine.StateMachine`."""
        self._tell_leadership(leadership)
