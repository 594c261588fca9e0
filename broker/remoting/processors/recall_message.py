"""Recall of a timed message: code 370 (RocketMQ's ``RecallMessageProcessor``)."""

from __future__ import annotations

from broker.context import BrokerContext
from broker.errors import Refusal
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame


class RecallMessageProcessor:
    """Handles recalls."""

    def __init__(self, context: BrokerContext) -> None:
        self._recalls = context.recalls

    def recall(self, connection: Connection, request: Frame) -> None:
        """Code 370."""

        def done(message_id: str, error: Refusal | None) -> None:
            if error is None:
                connection.respond(request, ext={"msgId": message_id})
            else:
                respond_refusal(connection, request, error)

        self._recalls.recall(ext_str(request, "topic"), ext_str(request, "recallHandle"), done)
