"""How a leader that should not lead gives the leadership up.

It transfers the leadership to a healthy voter that keeps up. If that fails, it steps down. If
nobody is healthy, the leader stays: its heartbeats do not wait for the disk, and a group without a
leader would be worse.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.errors import ChangeRefusedError
from dledger.node.peer_health import PeerHealth
from dledger.raft.core import Raft
from dledger.wire.service_messages import HealthReport

log = logging.getLogger(__name__)

LASTING_SECONDS = 1.0
"""Seconds that a leader must be unhealthy before it acts. A short trouble costs less than an
election."""

TRANSFER_SECONDS = 1.0
"""Seconds that a leadership transfer may take before an unhealthy leader steps down instead."""

RETRY_SECONDS = 10.0
"""Seconds between two tries to give the leadership up."""


class UnhealthyLeader:
    """Of one node. On the event loop."""

    def __init__(
        self,
        *,
        core: Raft,
        loop: asyncio.AbstractEventLoop,
        peers: PeerHealth,
        advance: Callable[[], None],
    ) -> None:
        """``advance`` has done what the core asks for."""
        self._core = core
        self._loop = loop
        self._peers = peers
        self._advance = advance
        self._next_try_at = 0.0
        self._transferring = False

    def transfer(self) -> bool:
        """Begins a transfer to the first voter that could lead; the preferred leader comes first.
        False: there is none. The caller takes the core's Ready."""
        core = self._core
        preferred = core.config.preferred_leader
        voters = self._peers.possible_leaders()
        for peer in sorted(voters, key=lambda peer: (peer != preferred, peer)):
            try:
                core.transfer_leadership(peer, self._loop.time())
            except ChangeRefusedError as error:
                log.info("%s does not transfer the leadership to %s: %s", core.node, peer, error)
            else:
                return True
        return False

    def look(self, report: HealthReport) -> None:
        """Acts if this node leads and has been unhealthy for a while, by its own ``report``."""
        core, now = self._core, self._loop.time()
        if report.healthy or not core.leads:
            self._next_try_at = now + LASTING_SECONDS
            self._transferring = False
            return
        if now < self._next_try_at or not self._peers.possible_leaders():
            return
        why = {"node": core.node, "reason": report.unhealthy_reason}
        log.warning("%(node)s gives up the leadership: %(reason)s", why)
        if not self._transferring and self.transfer():
            self._transferring = True
            self._next_try_at = now + TRANSFER_SECONDS
        else:
            self._transferring = False
            self._next_try_at = now + RETRY_SECONDS
            core.step_down(now)
        self._advance()
