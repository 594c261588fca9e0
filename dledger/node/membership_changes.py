"""Changes of the members that an operator asks for: begun on the leader, answered when they end.

A change ends when the first configuration that is not joint is applied, from its own entry on. Then
it is in effect, or it was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from dledger.errors import ChangeRefusedError, OutcomeUnknownError, ProposeError
from dledger.raft.configuration import LOST_INCARNATION, Configuration, MemberAddress
from dledger.raft.core import Raft

log = logging.getLogger(__name__)

Done: TypeAlias = Callable[[ProposeError | None], None]


class Membership:
    """The changes that one leader has under way; there is one at most, and one transfer."""

    def __init__(
        self, *, core: Raft, loop: asyncio.AbstractEventLoop, advance: Callable[[], None]
    ) -> None:
        """``advance`` has done what the core asks for."""
        self._core = core
        self._advance = advance
        self._loop = loop
        self._change: tuple[int, int, Callable[[Configuration], bool], Done] | None = None
        self._transfer: tuple[str, Done] | None = None
        self.busy = False
        """Whether anybody waits, or did so when :meth:`looked` was called last."""

    def add_learner(self, node: str, address: MemberAddress, done: Done) -> None:
        """``done(None)`` when the learner is one. Raises :class:`~dledger.errors.ProposeError`
        if nothing was begun, as the others here do."""
        self._check_free()
        index = self._core.add_learner(node, address, self._loop.time())
        self._begun(index, lambda found: node in found.learners, done)

    def promote(self, node: str, done: Done) -> None:
        """``done(None)`` when the learner is a voter."""
        self._check_free()
        index = self._core.promote(node, self._loop.time())
        self._begun(index, lambda found: node in found.voters, done)

    def remove(self, node: str, done: Done) -> None:
        """``done(None)`` when the node is no member any more."""
        self._check_free()
        index = self._core.remove(node, self._loop.time())
        self._begun(index, lambda found: node not in found.members, done)

    def transfer(self, target: str, done: Done) -> None:
        """``done(None)`` when the target leads; an error when it does not within an election
        timeout."""
        self._core.transfer_leadership(target, self._loop.time())
        self._transfer = (target, done)
        self.busy = True
        self._advance()

    def _check_free(self) -> None:
        """The last change may be committed, and not be applied and answered yet."""
        if self._change is not None:
            raise ChangeRefusedError("another change of the members is under way")

    def _begun(self, index: int, holds: Callable[[Configuration], bool], done: Done) -> None:
        self._change = (index, self._core.term, holds, done)
        self.busy = True
        self._advance()

    def applied(self, index: int) -> None:
        """An entry that is a configuration was applied."""
        self._tell_of_lost_disks(index)
        if self._change is None:
            return
        first, _, holds, done = self._change
        found = self._core.configurations.at(index)
        if index < first or found.is_joint:
            return
        self._change = None
        if holds(found):
            done(None)
        else:
            done(ChangeRefusedError("the change was not committed in time and is cancelled"))

    def _tell_of_lost_disks(self, index: int) -> None:
        core = self._core
        before, found = core.configurations.at(index - 1), core.configurations.at(index)
        for node, incarnation in found.incarnations.items():
            if incarnation != before.incarnations.get(node) and incarnation == LOST_INCARNATION:
                log.warning(
                    "%s: the disk of %s holds less than it held: it counts for nothing until "
                    "it is refilled",
                    core.node,
                    node,
                )

    def looked(self) -> None:
        """Who leads may have changed."""
        core = self._core
        if self._transfer is not None:
            target, done = self._transfer
            if core.leader == target:
                self._transfer = None
                done(None)
            elif core.leads and core.transfer_target is None:
                self._transfer = None
                done(ChangeRefusedError(f"{target} did not take over in time; this node goes on"))
            elif not core.leads and core.leader is not None:
                self._transfer = None
                done(ChangeRefusedError(f"{core.leader} was elected instead of {target}"))
        if self._change is not None and (not core.leads or core.term != self._change[1]):
            index, term, holds, done = self._change
            self._change = None
            # A leader that removes itself steps down as soon as that is committed.
            if core.commit_index >= core.configurations.index and holds(core.configuration):
                done(None)
            else:
                done(OutcomeUnknownError(index, term))
        self.busy = self._change is not None or self._transfer is not None

    def close(self) -> None:
        """The node stops."""
        core = self._core
        self.busy = False
        if self._transfer is not None:
            _, done = self._transfer
            self._transfer = None
            done(ChangeRefusedError("the node stops"))
        if self._change is not None:
            index, term, _, done = self._change
            self._change = None
            done(OutcomeUnknownError(index, term or core.term))
