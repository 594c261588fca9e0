"""The caller of a remoting request, for quotas."""

from __future__ import annotations

from broker.context import BrokerContext
from broker.limits import QUOTAS
from broker.quotas.throttle import Caller
from broker.remoting.access_guard import caller_of
from broker.remoting.connection import Connection
from broker.remoting.forwarded_frame import ForwardedFrame, pack_hold
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame


class Callers:
    """Identifies the callers of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._clients = context.clients

    def of(self, connection: Connection, request: Frame) -> Caller:
        """The account that the guard has identified, and the client id from the heartbeats of the
        connection. A forwarded request has no client id here: only the forwarding broker knows
        it."""
        account = caller_of(request).account
        forwarded = isinstance(request, ForwardedFrame)
        return Caller(
            "" if account is None else account.access_key,
            "" if forwarded else self._clients.id_of(connection),
        )


def hold(connection: Connection, request: Frame, debt: float) -> None:
    """Reads nothing from a client for ``debt`` seconds. The time is limited, so that answers to the
    client still come in time. Another broker's connection is read on, because many clients share
    it: that broker holds the one client."""
    seconds = debt if request.is_one_way else min(debt, QUOTAS.pause_seconds_max)
    if seconds <= 0:
        return
    if isinstance(request, ForwardedFrame):
        connection.push(RequestCode.HOLD_CLIENT, pack_hold(request.client, seconds))
    else:
        connection.hold_reading(seconds)
