"""Ends the process of a node once its group has removed it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.node.node import Node

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 1.0


class Decommissioning:
    """Calls ``end`` once no member needs ``node`` any more.

    The entry that removes a node may come while the node catches up, and a later entry may add it
    again. But a leader sends entries only to members. So the removal is final once no leader is
    heard and the newest configuration in the log does not have the node. A leader that removes
    itself leads until the entry is committed; after that it hears no leader either.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node: Node, end: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._node = node
        self._end = end
        node.removal.on_removed = self._look

    def _look(self) -> None:
        core = self._node.core
        if core.node in core.configuration.members:
            return
        if core.raft_state.is_led(self._loop.time()):
            self._loop.call_later(LOOK_AGAIN_SECONDS, self._look)
            return
        log.warning("%s stops: it is no longer a member", core.node)
        self._end()
