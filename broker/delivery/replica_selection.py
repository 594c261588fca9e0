"""Replica selection: a consumer that is far behind reads from a follower.

RocketMQ's rule: if the last message of a consumer lies further behind the end of the log than 40 %
of the machine's memory, its reads come from the disk. They would push out of the page cache what
all others read. So the consumer is sent to a slave until it has come near. A follower has only
committed entries, and names itself until then. The suggested_broker_id travels in the answer to a
pull, as a broker id: 0 is the leader, and ``n<k>`` is k + 1 while it follows.
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
    """Of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class ReplicaSelection:
    """Names the member to read from next; costs a comparison for each pull."""

    def __init__(self, config: NodeConfig, settings: DynamicSettings, node: Node) -> None:
        self._config = config
        self._settings = settings
        self._node = node
        self._far_bytes = memory_bytes() * config.follower_reads_percent // 100

    def is_far(self, position: int, end: int) -> bool:
        """Whether this part of a log that ends at ``end`` has left the memory, by RocketMQ's
        rule."""
        return end - position > self._far_bytes

    def suggested_broker_id(self, ranges: Sequence[LogRange], end: int, wished: int | None) -> int:
        """The broker id for the next pull, after one that returned ``ranges`` of a log up to
        ``end``.

        ``wished`` is the group's setting (``whichBrokerWhenConsumeSlowly``). If no follower has
        that id, as RocketMQ's usual 1 may be the leader's, it is the follower with the longest log.
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
