"""A bare node as the service of a process; see :class:`~dledger.node.service.Service`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.node.executor import Executors
from dledger.node.node import Node


class NodeService:
    """Starts and stops a node with its disk lanes."""

    def __init__(
        self,
        node: Node,
        executors: Executors,
        close: Callable[[], None],
        failed: asyncio.Future[BaseException],
    ) -> None:
        self.failed = failed
        self._node = node
        self._executors = executors
        self._close = close

    async def start(self) -> None:
        """See :class:`~dledger.node.service.Service`."""
        await self._node.start()

    async def drain(self) -> None:
        """See :class:`~dledger.node.service.Service`. No clients are connected to it."""

    async def stop(self) -> None:
        """See :class:`~dledger.node.service.Service`."""
        await self._node.stop()
        self._executors.close()
        self._node.store.close()
        self._close()
