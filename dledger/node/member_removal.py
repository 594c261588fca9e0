"""How a removed node learns of its removal, and stops asking for votes.

The log says who is a member. A node that has the committed entry of its removal never campaigns. A
node that was away lacks this entry, and nobody sends it the entry any more. So members tell
connected peers that are no members (:class:`~dledger.wire.service_messages.RemovedNotice`). A
peer's word is no proof, so it does not end the node. Once a majority of the others have said so,
the node asks for votes more and more seldom. That ends when it hears a leader, which it does after
it is added again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.raft.core import Raft
from dledger.raft.quorum import majority
from dledger.wire.service_messages import RemovedNotice, ServiceMessage

log = logging.getLogger(__name__)


class MemberRemoval:
    """Of one node: what it knows of its own removal, and tells others of theirs."""

    def __init__(self, *, core: Raft, send: Callable[[str, ServiceMessage], None]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when :attr:`is_member` may have changed."""
        self.on_removed: Callable[[], None] = lambda: None
        """Called when an entry removed this node that came while it ran. A node that was removed
        before it started waits to be added again."""
        self._core = core
        self._send = send
        self._told: dict[str, int] = {}  # by voters: the entry that they name
        self._known_at_start = -1

    @property
    def is_member(self) -> bool:
        """Whether this node is a member: by the committed log, unless a majority of the others
        denies it. One that waits to be added is none."""
        core = self._core
        committed = core.configurations.at(core.commit_index)
        return core.node in committed.members and not core.raft_state.removed

    def start(self) -> None:
        """Reports the removal once, if the log already says so."""
        core = self._core
        self._known_at_start = core.configurations.index
        committed = core.configurations.at(core.commit_index)
        if committed.voters and core.node not in committed.members:
            self._say(core.configurations.index)

    def applied(self, index: int) -> None:
        """The configuration of that index was applied."""
        core = self._core
        before, found = core.configurations.at(index - 1), core.configurations.at(index)
        if core.node in before.members and core.node not in found.members:
            self._say(index)
            if index > self._known_at_start:
                self.on_removed()
        for peer in list(core.raft_state.up):
            self.greet(peer)
        self.on_change()

    def _say(self, index: int) -> None:
        log.warning(
            "%s was removed from its group (entry %d): it takes part in nothing until it is added "
            "again",
            self._core.node,
            index,
        )

    def greet(self, peer: str) -> None:
        """Tells a peer that was reached, if it is no member by the committed log."""
        core = self._core
        found, index = core.configuration, core.configurations.index
        if found.votes(core.node) and 0 <= index <= core.commit_index and peer not in found.members:
            self._send(peer, RemovedNotice(index))

    def received(self, sender: str, notice: RemovedNotice, now: float) -> None:
        """A peer says that the entry of that index removed this node."""
        if self._core.configuration.votes(sender):
            self._told[sender] = notice.index
            self.look(now)

    def look(self, now: float) -> None:
        """Believes what peers have said once no leader is heard. They say it just after the last
        heartbeat, and not again while the link stands; so this looks again, twice a second."""
        core = self._core
        raft_state, found = core.raft_state, core.configuration
        if raft_state.removed or not self._told or not found.votes(core.node):
            return
        if raft_state.is_led(now):
            return
        for voters in found.quorums:
            others = [name for name in voters if name != core.node]
            told = [name for name in others if self._told.get(name, -1) > core.commit_index]
            if len(told) < majority(len(others)):
                return
        core.removal_told()
        log.warning(
            "%s: %s say that it was removed from its group, by entry %d, which is not here: it "
            "asks for votes more and more seldom; its process may be stopped",
            core.node,
            ", ".join(sorted(self._told)),
            max(self._told.values()),
        )
        self._told.clear()
        self.on_change()
