"""Housekeeping on request of an operator: 306, 316, 329.

ConsumeQueues of deleted topics, and rows of expired messages, are deleted with the expired part of
the log. So all three codes make retention run now instead of within ten seconds.
"""

from __future__ import annotations

from broker.context import BrokerContext
from broker.maintenance.retention import Retention
from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import Frame


class CleaningProcessor:
    """Handles mqadmin's commands ``cleanExpiredCQ``, ``cleanUnusedTopic``,
    ``deleteExpiredCommitLog``."""

    def __init__(self, context: BrokerContext, retention: Retention) -> None:
        self._context = context
        self._retention = retention

    def clean(self, connection: Connection, request: Frame) -> None:
        """The leader decides for all replicas. The answer does not wait for the deletion."""
        self._context.batcher.check_serving()
        self._retention.check_soon()
        connection.respond(request)
