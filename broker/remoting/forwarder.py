"""A follower forwards requests to the leader that only the leader can serve.

A client with an old route asks a broker that leads no more. The broker forwards the request, and
the leader's answer comes back. So the client loses a round trip, not the time until it asks for a
route again.

A request is forwarded if it is refused with one of :data:`~broker.errors.NOT_HERE`, which changed
nothing. The receiver does not forward it again, so there are no loops. Without a known leader the
request waits for one (:mod:`broker.leader_wait`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import cast

from broker.errors import NoAnswerError, Refusal
from broker.leader_wait import LeaderWait
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
    RequestCode,
)
from broker.remoting.protocol.errors import CallError, RequestTooLargeError
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import NO_SECURITY, ClientSecurity


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
        self._own_address = own_address
        self._leader_address = leader_address
        self._dispatch = dispatch
        self._limits = limits
        self._client = RemotingClient(
            loop, {RequestCode.HOLD_CLIENT: self._hold}, security=security
        )
        self._clients: dict[str, Connection] = {}
        """Connections whose requests went to a leader, by client address."""
        self._leader_wait = LeaderWait(loop, own_address, leader_address, limits)
        self.leadership_changed = self._leader_wait.leadership_changed
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
        if self._leader_wait.closed:
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

    async def close(self) -> None:
        """Refuses the waiting requests. The outcome of forwarded requests is unknown."""
        self._leader_wait.close()
        await self._client.close()

    def _wait(self, connection: Connection, request: Frame, error: Refusal) -> bool:
        resume = partial(self._resume, connection, request, error)
        return self._leader_wait.hold(resume, len(request.body))

    def _resume(self, connection: Connection, request: Frame, error: Refusal, again: bool) -> None:
        if not again:
            refuse(connection, request, error)
        elif not connection.is_closed:
            serve(self._dispatch, connection, request)

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
            self._leader_wait.answered()
            ext = cast("Mapping[str, str]", {**answer.ext, LEADER: address})
            connection.respond(request, answer.code, answer.remark, ext, (answer.body,))
        elif isinstance(failure, RequestTooLargeError):
            refuse(connection, request, error)  # the leader itself may take it
        elif failure is not None and failure.was_sent:
            refuse(connection, request, NoAnswerError(failure))
        elif self._leader_address() not in (address, None):
            serve(self._dispatch, connection, request)
        elif not self._wait(connection, request, error):
            refuse(connection, request, error)
