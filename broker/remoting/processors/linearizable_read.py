"""Answers that are true now: what describes offsets, queues and topics is read behind a read index.

So a deposed leader says nothing old, and a follower says what the leader would. With
``reads = "stale"`` in ``node.toml`` a node answers from what it has applied, as RocketMQ's slaves
do: the answer was true once, and on a follower, or a leader that is cut off, may not be any more.
"""

from __future__ import annotations

from functools import partial

from broker.context import BrokerContext
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import serve
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.frame import Frame
from dledger.errors import ProposeError


def linearizable(context: BrokerContext, handler: Handler) -> Handler:
    """The handler, called once what this node has applied is known to be the newest."""
    if context.config.reads == "stale":
        return handler

    def ask(connection: Connection, request: Frame) -> None:
        context.node.reads.add(partial(_answer, handler, connection, request))

    return ask


def _answer(
    handler: Handler, connection: Connection, request: Frame, error: ProposeError | None
) -> None:
    if error is not None:
        respond_refusal(connection, request, error)
        return
    serve(handler, connection, request)
