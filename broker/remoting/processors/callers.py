"""Who sends a request over remoting, as far as quotas ask."""

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
    """Of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._clients = context.clients

    def of(self, connection: Connection, request: Frame) -> Caller:
        """The account as the guard has found it, and the client id by the heartbeats of the
        connection. That of a forwarded request is known to the broker that forwards, and not
        here."""
        account = caller_of(request).account
        forwarded = isinstance(request, ForwardedFrame)
        return Caller(
            "" if account is None else account.access_key,
            "" if forwarded else self._clients.id_of(connection),
        )


def hold(connection: Connection, request: Frame, debt: float) -> None:
    """Reads nothing from a client that has ``debt`` seconds of debt: until it is paid, or not for
    long, so that what it waits for comes in time. Another broker's connection, which many clients
    share, is read on: that broker holds the one client."""
    seconds = debt if request.is_one_way else min(debt, QUOTAS.pause_seconds_max)
    if seconds <= 0:
        return
    if isinstance(request, ForwardedFrame):
        connection.push(RequestCode.HOLD_CLIENT, pack_hold(request.client, seconds))
    else:
        connection.hold_reading(seconds)
