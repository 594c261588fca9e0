"""The dispatcher of all calls: decodes, checks, serves and answers them, or forwards them to the
leader.

A call comes from a client of this broker, or from another broker that forwards it. A call that is
refused because another node leads is forwarded (:mod:`broker.grpc.forwarding`); a forwarded call is
not forwarded again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message

from broker.errors import ANSWERED, NOT_HERE, Answered, WrongStateError
from broker.grpc.access import GrpcAccess
from broker.grpc.call import Call
from broker.grpc.call_budget import CallBudget
from broker.grpc.protocol.definition_pb2 import Code, Status
from broker.grpc.statuses import DEFECT, DOUBTS, BadCallError, refusal_status
from broker.leader_wait import LeaderWait
from broker.limits import GRPC
from broker.security.authorize import DESCRIBE, Access
from dledger.errors import BusyError
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

REPEATS_MAX = 2
"""Pace: how often a call with an unknown outcome is retried."""

NEW_TRY_SECONDS = 0.05
"""Pace: what a call has waited counts from here on: most calls wait for less, and need no copy."""

DECODED_FACTOR = 24
"""An empty message within a message takes two bytes encoded, and up to 48 decoded."""

REPEATED_SIZE_MAX = 8192
"""Pace: a request that is larger is refused without decoding it. Names and a receipt handle take
less."""

Handler: TypeAlias = Callable[[Call, Any], Awaitable[Sequence[Message]]]
"""Serves a call: returns the message of the answer, or all messages of a stream."""

OnEnd: TypeAlias = Callable[[Callable[[object], None]], None]
"""Takes what is called when a call has ended, with any value."""


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
    """Whether the answer is a stream."""
    repeatable: bool = False
    """Whether the call is idempotent, so that it is retried if its outcome is unknown."""
    reads: bool = False
    """Whether the answer to a retry is right whatever an earlier try has done."""
    has_bodies: bool = False
    """Whether most of a request are bodies of messages, which take no more memory decoded. The
    handler holds what the rest takes."""

    refusal_repeats: str = ""
    """A short field of the request that a refusal has, too. Some clients take the field from every
    answer."""

    def refusal(self, body: bytes, status: Status) -> bytes:
        """The encoded answer to a request that was refused or failed."""
        response = self.response(status=status)
        if self.refusal_repeats and len(body) <= REPEATED_SIZE_MAX:
            with suppress(DecodeError):
                request = self.request.FromString(body)
                setattr(response, self.refusal_repeats, getattr(request, self.refusal_repeats))
        return response.SerializeToString()

    def succeeded(self, answers: Sequence[bytes]) -> bool:
        """Whether the encoded answers say that all was done."""
        first: Any = self.response.FromString(answers[0])
        return bool(first.status.code == Code.OK)

    def memory(self, body: bytes) -> int:
        """The bytes that a request takes while it is in progress."""
        return len(body) if self.has_bodies else DECODED_FACTOR * len(body)


class Dispatcher:
    """Serves the calls of one broker."""

    def __init__(  # noqa: PLR0917 - its parts, each once
        self,
        methods: Mapping[str, Method],
        forward: Callable[[Call, bytes], Awaitable[Sequence[bytes] | None]],
        leader_wait: LeaderWait,
        access: GrpcAccess | None,
        state_is_wrong: Callable[[], bool],
        refusals: Counter[str],
    ) -> None:
        """``forward``: see :meth:`~broker.grpc.forwarding.GrpcForwarder.forward`.
        ``state_is_wrong``: whether this node's state differs from its group's. ``refusals``
        counts refusals by reason."""
        self.budget = CallBudget()
        self.methods = methods
        self.refusals = refusals
        self._forward = forward
        self._leader_wait = leader_wait
        self._access = access
        self._state_is_wrong = state_is_wrong

    async def serve(self, call: Call, body: bytes, on_end: OnEnd | None = None) -> Sequence[bytes]:
        """The encoded answers. Raises one of :data:`NOT_HERE`, but only for a forwarded call.

        ``on_end`` is told what to call when the client has read the answers, or is gone: until then
        the call and its answers count. None: the answers are counted elsewhere.
        """
        method = self.methods[call.method]
        size = method.memory(body)
        try:
            lease = self.budget.begin(size, is_large=method.streams)
        except BusyError as busy:
            return self._refused(method, body, busy)
        if on_end is not None:
            on_end(lease.end)
        try:
            counted = replace(call, hold=lambda more: lease.hold(size + more))
            answers = await self._serve(counted, method, body)
            if on_end is not None:
                lease.answered(sum(map(len, answers)))
            return answers
        except ANSWERED as error:
            if call.forwarded and isinstance(error, NOT_HERE):
                raise
            return self._refused(method, body, error)
        except Exception:
            # A defect of the broker. It ends only this call, as with a remoting request.
            log.exception("a call of %s failed", call.method, extra=FROM_OUTSIDE)
            return [method.refusal(body, DEFECT)]
        finally:
            lease.hold(0)
            if on_end is None:
                lease.end()

    async def _serve(self, call: Call, method: Method, body: bytes) -> Sequence[bytes]:
        request = self.decoded(method.request, body)
        call = self.checked(call, lambda: method.access(request))

        now = asyncio.get_running_loop().time
        began = now()

        def left() -> Call:
            """The call as it is at this try: the client waits for less than at the one before."""
            waited = now() - began
            if call.seconds is None or waited < NEW_TRY_SECONDS:
                return call
            return replace(call, seconds=max(call.seconds - waited, 0.0))

        async def serve() -> Sequence[bytes]:
            return [each.SerializeToString() for each in await method.handler(left(), request)]

        repeats = REPEATS_MAX if method.repeatable and not call.forwarded else 0
        doubt: Answered | None = None
        """Why an earlier try may have been carried out. The refusal of a later one does not tell
        what became of it."""
        while True:
            try:
                answers = await self._leader_wait.serve_or_forward(
                    serve, None if call.forwarded else lambda _refusal: self._forward(left(), body)
                )
            except DOUBTS as error:
                if repeats == 0:
                    raise
                repeats -= 1
                doubt = error
            except ANSWERED as error:
                if doubt is None or method.reads:
                    raise
                raise doubt from error
            else:
                if doubt is None or method.reads or method.succeeded(answers):
                    return answers
                raise doubt

    def checked(self, call: Call, needed: Callable[[], Iterable[Access]]) -> Call:
        """The call with its caller. Raises :class:`~broker.errors.AccessDeniedError` if the caller
        lacks a permission, and :class:`~broker.errors.WrongStateError` if this node's state is
        wrong."""
        call = self.allowed(call, needed)
        if self._state_is_wrong():
            raise WrongStateError
        if len(call.client_id) > GRPC.name_size_max:
            raise BadCallError(Code.CLIENT_ID_REQUIRED, "x-mq-client-id is too long")
        return call

    def allowed(self, call: Call, needed: Callable[[], Iterable[Access]]) -> Call:
        """The call with its caller. Raises :class:`~broker.errors.AccessDeniedError` if the caller
        lacks a permission."""
        if self._access is None:
            return call
        return replace(call, caller=self._access.check(call, needed))

    @staticmethod
    def decoded(kind: type[Message], body: bytes) -> Message:
        """The decoded request. Raises :class:`~broker.grpc.statuses.BadCallError`."""
        try:
            return kind.FromString(body)
        except DecodeError:
            raise BadCallError(
                Code.BAD_REQUEST, f"the request is not a {kind.DESCRIPTOR.name}"
            ) from None

    def refused(self, error: Answered) -> Status:
        """Counts an error, and returns its status."""
        return refusal_status(error, self.refusals)

    def _refused(self, method: Method, body: bytes, error: Answered) -> Sequence[bytes]:
        return [method.refusal(body, self.refused(error))]
