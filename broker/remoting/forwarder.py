"""A follower forwards requests to the leader that only the leader can serve.

A client with an old route asks a broker that leads no more. The broker forwards the request, and
the leader's answer comes back. So the client loses a round trip, not the time until it asks for a
route again.

A request is forwarded if it is refused with one of :data:`~broker.errors.NOT_HERE`, which changed
nothing. The receiver does not forward it again, so there are no loops. Without a known leader the
request waits for one, for as long as an election takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, cast

from broker.errors import Refusal
from broker.limits import FORWARDING, ForwardingLimits
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import serve
from broker.remoting.error_responses import refuse
from broker.remoting.forwarded_frame import (
    ForwardedFrame,
    pack_forwarded,
    unpack_forwarded,
    unpack_hold,
)
from broker.remoting.protocol.codes import (
    LEADER,
    OUTCOME,
    OUTCOME_NOT_LEADER,
    OUTCOME_UNKNOWN,
    RequestCode,
    ResponseCode,
)
from broker.remoting.protocol.errors import (
    CallError,
    ConnectFailedError,
    RequestTooLargeError,
    TooManyRequestsError,
)
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import NO_SECURITY, ClientSecurity


class _Waiting(NamedTuple):
    connection: Connection
    request: Frame
    error: Refusal
    """The refusal that answers it if no leader appears."""


class Forwarder:
    """Forwards requests, for one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        own_address: str,
        leader_address: Callable[[], str | None],
        dispatch: Handler,
        *,
        limits: ForwardingLimits = FORWARDING,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """``leader_address`` gives the leader's address as ``host:port``; None while no leader is
        known. ``dispatch`` serves requests that waited. ``security`` shows the leader that a broker
        of the cluster forwards."""
        self._loop = loop
        self._own_address = own_address
        self._leader_address = leader_address
        self._dispatch = dispatch
        self._limits = limits
        self._client = RemotingClient(
            loop, {RequestCode.HOLD_CLIENT: self._hold}, security=security
        )
        self._clients: dict[str, Connection] = {}
        """Connections whose requests went to a leader, by client address."""
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._gave_up = False
        """No leader came in time, and none has answered since: requests are refused at once."""
        self._closed = False
        self.forwarded = 0
        """The number of requests forwarded since the start."""
        self.on_broker: Callable[[], None] = lambda: None
        """Called when a connection turns out to be another broker's."""
        self._brokers: set[Connection] = set()
        """The connections of other brokers."""

    def take(self, connection: Connection, request: Frame, error: Refusal) -> bool:
        """Takes over a request that was refused with one of :data:`~broker.errors.NOT_HERE`.

        Returns False if it must be refused: it was forwarded before, too many requests wait, or no
        leader appeared in time.
        """
        if self._closed:
            return False
        address = self._leader_address()
        forwarded = isinstance(request, ForwardedFrame)
        if address == self._own_address or (address is None and not forwarded):
            return self._wait(connection, request, error)
        if address is None or forwarded:
            return False
        self._forward(address, connection, request, error)
        return True

    def serve_forwarded(self, connection: Connection, request: Frame) -> None:
        """Code :data:`RequestCode.FORWARD`: serves a forwarded request. Raises
        :class:`~broker.remoting.protocol.errors.FieldError` if there is none."""
        self._dispatch(connection, unpack_forwarded(request))

    def from_brokers(self, serve_request: Handler) -> Handler:
        """Wraps ``serve_request`` for a code that only brokers send: it marks the connection as a
        broker's."""

        def marked(connection: Connection, request: Frame) -> None:
            if connection not in self._brokers:
                self._brokers.add(connection)
                connection.on_close(self._brokers.discard)
                self.on_broker()
            serve_request(connection, request)

        return marked

    def has_clients(self, connections: Collection[Connection]) -> bool:
        """Whether any of these connections is a client's, not a broker's."""
        return any(each not in self._brokers for each in connections)

    def leadership_changed(self, leader: str | None) -> None:
        """Tries the waiting requests again."""
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if leader is not None:
            self._gave_up = False
        for connection, request, _ in waiting:
            if not connection.is_closed:
                serve(self._dispatch, connection, request)
        if not self._waiting:
            self._stop_timer()

    async def close(self) -> None:
        """Refuses the waiting requests. The outcome of forwarded requests is unknown."""
        self._closed = True
        self._stop_timer()
        self._refuse_waiting()
        await self._client.close()

    # --- without a leader

    def _wait(self, connection: Connection, request: Frame, error: Refusal) -> bool:
        size, limits = len(request.body), self._limits
        if (
            self._gave_up
            or self._closed
            or len(self._waiting) >= limits.waiting_max
            or self._waiting_bytes + size > limits.waiting_bytes_max
        ):
            return False
        self._waiting.append(_Waiting(connection, request, error))
        self._waiting_bytes += size
        if self._timer is None:
            self._timer = self._loop.call_later(limits.wait_seconds, self._give_up)
        return True

    def _give_up(self) -> None:
        self._timer = None
        self._gave_up = True
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        for each in waiting:
            refuse(*each)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- to the leader

    def _forward(
        self, address: str, connection: Connection, request: Frame, error: Refusal
    ) -> None:
        self.forwarded += 1
        if connection.remote_address not in self._clients:
            self._clients[connection.remote_address] = connection
            connection.on_close(self._forget)
        self._client.call(
            address,
            RequestCode.FORWARD,
            pack_forwarded(request, connection.remote_address),
            (request.body,),
            timeout=self._limits.answer_seconds,
            done=partial(self._answered, address, connection, request, error),
        )

    def _forget(self, connection: Connection) -> None:
        if self._clients.get(connection.remote_address) is connection:
            del self._clients[connection.remote_address]

    def _hold(self, _leader: Connection, request: Frame) -> None:
        """The leader says that a client is beyond a quota. Nothing is read from it for a while."""
        address, seconds = unpack_hold(request)
        client = self._clients.get(address)
        if client is not None:
            client.hold_reading(seconds)

    def _answered(  # noqa: PLR0917 - the request with where it went, then the answer
        self,
        address: str,
        connection: Connection,
        request: Frame,
        error: Refusal,
        answer: Frame | None,
        failure: CallError | None,
    ) -> None:
        if answer is not None and answer.ext.get(OUTCOME) != OUTCOME_NOT_LEADER:
            self._gave_up = False
            ext = cast("Mapping[str, str]", {**answer.ext, LEADER: address})
            connection.respond(request, answer.code, answer.remark, ext, (answer.body,))
        elif isinstance(failure, RequestTooLargeError):
            refuse(connection, request, error)  # the leader itself may take it
        elif answer is None and not isinstance(failure, ConnectFailedError | TooManyRequestsError):
            connection.respond(
                request,
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the leader did not answer, and may have done it: {failure}",
                {OUTCOME: OUTCOME_UNKNOWN},
            )
        elif not self._closed and self._leader_address() not in (address, None):
            serve(self._dispatch, connection, request)
        elif not self._wait(connection, request, error):
            refuse(connection, request, error)
