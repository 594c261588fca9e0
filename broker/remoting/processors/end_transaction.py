"""The end of a transaction: code 37 (``EndTransactionProcessor``)."""

from __future__ import annotations

from broker.context import BrokerContext
from broker.remoting.access_guard import caller_of
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.security.authorize import authorize, publish

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
"""RocketMQ's outcomes of a transaction, as bits of the system flag."""


class EndTransactionProcessor:
    """Handles producers' decisions about their transactions."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def end(self, connection: Connection, request: Frame) -> None:
        """Code 37. Most clients send it one-way. The answer comes once the decision is
        committed."""
        group = ext_str(request, "producerGroup")
        offset = ext_int(request, "tranStateTableOffset")
        position = ext_int(request, "commitLogOffset")
        outcome = ext_int(request, "commitOrRollback")
        message_id = ext_str(request, "msgId", "")
        if outcome not in {UNKNOWN, COMMIT, ROLLBACK}:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback is {outcome}, it may be {COMMIT}, {ROLLBACK} or {UNKNOWN}",
            )
        if outcome == UNKNOWN:  # a check-back asks again
            connection.respond(request)
            return

        caller = caller_of(request)
        self._context.transactions.end(
            offset,
            position,
            group,
            message_id,
            commit=outcome == COMMIT,
            ended=respond_when_done(connection, request),
            may=lambda topic: not authorize(caller, publish(topic)),
        )
