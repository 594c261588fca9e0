"""The one place of a remoting port in which a request's caller is known and allowed or refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from broker.errors import AccessDeniedError
from broker.remoting.connection import Connection, Handler
from broker.remoting.error_responses import respond_refusal
from broker.remoting.forwarded_frame import client_address
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.frame import Frame
from broker.security.access_control import AccessControl
from broker.security.authorize import ADMINISTER, EVERYBODY, Access, Caller
from dledger.wire.endpoint import address_host

Classifier: TypeAlias = Callable[[Frame], Iterable[Access]]
"""What a request needs. Raises :class:`~broker.remoting.protocol.errors.FieldError`."""


def caller_of(request: Frame) -> Caller:
    """Who asks, as the guard has found out."""
    caller = getattr(request, "caller", EVERYBODY)
    assert isinstance(caller, Caller)  # noqa: S101 - only the guard sets it
    return caller


def guarded(
    dispatch: Handler,
    access: AccessControl,
    needs: Mapping[int, Classifier],
    *,
    always: Collection[int] = (),
    without: Collection[int] = (),
) -> Handler:
    """A handler that checks a request by the row of its code in ``needs``, and passes it on.

    A code without a row is for admins. The codes ``always`` are refused also where access control
    is permissive. Those ``without`` are for everybody, with an account or without.
    """

    def needed(request: Frame) -> Iterable[Access]:
        row = needs.get(request.code)
        try:
            return ADMINISTER if row is None else row(request)
        except RequestError:
            if access.enforcing:
                raise
            return ()  # the handler says what is wrong with it

    def guard(connection: Connection, request: Frame) -> None:
        if request.code in without:
            dispatch(connection, request)
            return
        enforced = request.code in always
        # Where access control is permissive, anybody may forward, and name any client.
        address = connection.remote_address if enforced else client_address(connection, request)
        try:
            request.caller = access.check(
                lambda: access.signed(request.ext, request.body, address_host(address)),
                lambda: needed(request),
                address,
                always=enforced,
            )
        except AccessDeniedError as error:
            respond_refusal(connection, request, error)
        else:
            dispatch(connection, request)

    return guard
