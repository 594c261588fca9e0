"""The one way of every call: decode, check, do, and answer; or pass it on to the leader.

A call does not know from where it comes: a client of this broker, or another broker that forwards
it. What is refused because another node leads is forwarded (:mod:`broker.grpc.forwarding`); a call
that was forwarded is not forwarded again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import DecodeError, Message

from broker.errors import NOT_HERE, WrongStateError, reason_of
from broker.grpc.access import GrpcAccess
from broker.grpc.call import Call
from broker.grpc.protocol.definition_pb2 import Code, Status
from broker.grpc.statuses import ANSWERED, BadCallError, NoAnswerError, status_of
from broker.leader_wait import LeaderWait
from broker.limits import GRPC, GrpcLimits
from broker.security.authorize import DESCRIBE, Access
from dledger.errors import (
    BusyError,
    OutcomeUnknownError,
)
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

REPEATS_MAX = 2
"""Pace: so often is a call tried again whose outcome is unknown."""

Handler: TypeAlias = Callable[[Call, Any], Awaitable[Sequence[Message]]]
"""Gives the messages of the answer: one, or all of a stream."""


def _describe(_request: Any) -> Iterable[Access]:
    return DESCRIBE


@dataclass(frozen=True, slots=True)
class Method:
    """One call of the service."""

    request: type[Message]
    response: type[Message]
    handler: Handler
    access: Callable[[Any], Iterable[Access]] = _describe
    streams: bool = False
    """The answer is a stream."""
    repeatable: bool = False
    """Done twice it is done once: it is tried again where its outcome is unknown."""


class Forwarding(Protocol):
    """The used part of :class:`~broker.grpc.forwarding.GrpcForwarder`."""

    async def forward(self, call: Call, body: bytes) -> Sequence[bytes] | None: ...


class Dispatcher:
    """Serves the calls of one broker."""

    def __init__(  # noqa: PLR0917 - its parts, each once
        self,
        methods: Mapping[str, Method],
        forwarder: Forwarding,
        leader_wait: LeaderWait,
        access: GrpcAccess | None,
        state_is_wrong: Callable[[], bool],
        refusals: Counter[str],
        limits: GrpcLimits = GRPC,
    ) -> None:
        """``state_is_wrong``: whether this node's state is not that of its group. ``refusals``
        counts by reason."""
        self.methods = methods
        self.refusals = refusals
        self._forwarder = forwarder
        self._leader_wait = leader_wait
        self._access = access
        self._state_is_wrong = state_is_wrong
        self._limits = limits
        self._calls = 0
        self._bytes = 0

    async def serve(self, call: Call, body: bytes) -> Sequence[bytes]:
        """The answers, encoded. Raises one of :data:`NOT_HERE` for a forwarded call alone."""
        method = self.methods[call.method]
        limits = self._limits
        if self._calls >= limits.calls_max or self._bytes + len(body) > limits.bytes_max:
            busy = BusyError(self._calls, limits.calls_max, "calls are handled")
            return self._refused(method, busy)
        self._calls += 1
        self._bytes += len(body)
        try:
            return await self._serve(call, method, body)
        except ANSWERED as error:
            if call.forwarded and isinstance(error, NOT_HERE):
                raise
            return self._refused(method, error)
        except Exception:
            # Unforeseen: a defect. It ends this call alone, as a defect in a frame does.
            log.exception("a call of %s failed", call.method, extra=FROM_OUTSIDE)
            status = Status(code=Code.INTERNAL_SERVER_ERROR, message="the broker failed at it")
            return [method.response(status=status).SerializeToString()]
        finally:
            self._calls -= 1
            self._bytes -= len(body)

    async def _serve(self, call: Call, method: Method, body: bytes) -> Sequence[bytes]:
        request = self.decoded(method.request, body)
        call = self.checked(call, lambda: method.access(request))

        async def here() -> Sequence[bytes]:
            return [each.SerializeToString() for each in await method.handler(call, request)]

        async def there(_refusal: Exception) -> Sequence[bytes] | None:
            return await self._forwarder.forward(call, body)

        repeats = REPEATS_MAX if method.repeatable and not call.forwarded else 0
        while True:
            try:
                return await self._leader_wait.here_or_there(here, there, forwarded=call.forwarded)
            except (OutcomeUnknownError, NoAnswerError):
                if repeats == 0:
                    raise
                repeats -= 1

    def checked(self, call: Call, needed: Callable[[], Iterable[Access]]) -> Call:
        """The call with its caller. Raises :class:`~broker.errors.AccessDeniedError` for what must
        not be done, and :class:`~broker.errors.WrongStateError` if nothing can be done here."""
        if self._access is not None:
            call = replace(call, caller=self._access.check(call, needed))
        if self._state_is_wrong():
            raise WrongStateError
        if len(call.client_id) > self._limits.name_size_max:
            raise BadCallError(Code.CLIENT_ID_REQUIRED, "x-mq-client-id is too long")
        return call

    @staticmethod
    def decoded(kind: type[Message], body: bytes) -> Message:
        """Raises :class:`~broker.grpc.statuses.BadCallError`."""
        try:
            return kind.FromString(body)
        except DecodeError:
            raise BadCallError(
                Code.BAD_REQUEST, f"the request is no {kind.DESCRIPTOR.name}"
            ) from None

    def refused(self, error: Exception) -> Status:
        """The status of a refusal, which is counted."""
        self.refusals[reason_of(error)] += 1
        return status_of(error)

    def _refused(self, method: Method, error: Exception) -> Sequence[bytes]:
        return [method.response(status=self.refused(error)).SerializeToString()]
