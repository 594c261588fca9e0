"""Replica selection: a consumer that is far behind reads from a follower.

RocketMQ's rule: if the last message of a pull lies further behind the end of the log than 40 % of
the machine's memory, the consumer reads from disk. These reads would displace the pages that all
others read from the page cache. So the consumer is sent to a follower until it is closer to the
end. Until then the follower names itself. The answer to a pull has the suggestion as a broker id: 0
is the leader, and ``n<k>`` has k + 1 while it follows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from broker.config.dynamic_settings import DynamicSettings
from broker.config.node_config import NodeConfig, broker_id_of
from broker.delivery.message_reader import LogRange
from dledger.node.node import Node
from dledger.raft.progress import ProgressState

LEADER_ID = 0


def memory_bytes() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class ReplicaSelection:
    """Chooses the member to read from next, at the cost of a comparison for each pull."""

    def __init__(self, config: NodeConfig, settings: DynamicSettings, node: Node) -> None:
        self._config = config
        self._settings = settings
        self._node = node
        self._far_bytes = memory_bytes() * config.follower_reads_percent // 100

    def is_far(self, position: int, end: int) -> bool:
        """Whether this position of a log that ends at ``end`` is no longer in memory, by RocketMQ's
        rule."""
        return end - position > self._far_bytes

    def suggested_broker_id(self, ranges: Sequence[LogRange], end: int, wished: int | None) -> int:
        """The broker id for the next pull, after one that returned ``ranges`` of a log up to
        ``end``.

        ``wished`` is the group's setting (``whichBrokerWhenConsumeSlowly``). If no follower has
        that id, the follower with the longest log is chosen. RocketMQ's default 1 may be the
        leader's.
        """
        if not ranges or not self._settings.follower_reads:
            return LEADER_ID
        position, size, _ = ranges[-1]
        if not self.is_far(position + size, end):
            return LEADER_ID
        if not self._node.serving:
            return self._config.follower_broker_id
        followers = {
            broker_id_of(name): progress.match_index
            for name, progress in sorted(self._node.core.progress.items())
            if progress.connected and progress.state is ProgressState.REPLICATE
        }
        if wished in followers:
            return wished
        return max(followers, key=followers.__getitem__, default=LEADER_ID)
