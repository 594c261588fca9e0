"""Linearizable answers: offsets, queues and topics are read behind a read index.

So a deposed leader gives no old answer, and a follower answers like the leader. With ``reads =
"stale"`` in ``node.toml`` a node answers from its applied state, as RocketMQ's slaves do. The
answer was true once. On a follower, or on a leader that is cut off, it may be old.
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
    """The handler, called once this node's applied state is known to be the newest."""
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
