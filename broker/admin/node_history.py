"""Samples of a node, every ten seconds, for the charts of the console."""

from __future__ import annotations

import asyncio

from broker.admin.consumer_groups import ConsumerGroups
from broker.admin.turns import Turn
from broker.context import BrokerContext
from broker.metrics.history import STEP_SECONDS, History, HistorySample

UNKNOWN = -1


class NodeHistory:
    """Samples one node, from :meth:`start` to :meth:`stop`."""

    def __init__(self, context: BrokerContext, history: History | None = None) -> None:
        self.history = History() if history is None else history
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._counted = self._counts()

    def start(self) -> None:
        """Begins to sample."""
        self._counted = self._counts()
        self._task = self._context.loop.create_task(self._sample_often())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def sample(self) -> None:
        """Adds a sample with the counts since the last one."""
        lag = await self._lag()
        before, now = self._counted, self._counts()
        self._counted = now
        stored, delivered, log_bytes, commits, seconds = (
            after - earlier for after, earlier in zip(now, before, strict=True)
        )
        leads = self._context.node.leadership.serving
        self.history.add(
            HistorySample(
                time_ms=self._context.wall_clock(),
                stored=int(stored),
                delivered=int(delivered),
                log_bytes=int(log_bytes) if leads else 0,
                commit_us=round(1e6 * seconds / commits) if commits else UNKNOWN,
                lag=lag,
            )
        )

    async def _sample_often(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            await self.sample()

    def _counts(self) -> tuple[float, ...]:
        context = self._context
        commits = context.node.proposals.commit_seconds
        return (
            context.stats.put_messages,
            context.stats.get_messages,
            context.machine.applied_end,
            commits.count,
            commits.sum,
        )

    async def _lag(self) -> int:
        """The lag of all groups, on the leader."""
        context = self._context
        if not context.node.leadership.serving or context.node.state_divergence.wrong:
            return UNKNOWN
        lag = 0
        turn = Turn()
        for group in ConsumerGroups(context.machine, context.clients).all():
            lag += sum(topic.lag or 0 for topic in group.topics)
            await turn.took(sum(len(topic.committed) for topic in group.topics))
        return lag
