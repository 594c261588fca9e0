"""Linearizable reads of offsets, queues and topics, by ReadIndex.

So a deposed leader gives no outdated answer, and a follower answers like the leader. With ``reads =
"stale"`` in ``node.toml`` a node answers from its applied state, as RocketMQ's slaves do. Then the
answer of a follower, or of a leader that is cut off, may be outdated.
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
    """Wraps ``handler``: it is called once this node has applied everything committed before the
    request."""
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
