"""The one place of a remoting port that identifies a request's caller and checks its permission."""

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
"""The permissions that a request needs. Raises
:class:`~broker.remoting.protocol.errors.FieldError`."""


def caller_of(request: Frame) -> Caller:
    """The caller of a request, which the guard has identified."""
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
    """A handler that checks the permissions of a request, and passes it on to ``dispatch``.
    ``needs`` tells them for a request code.

    Other codes are for admins. The codes ``always`` are refused even if access control is
    permissive. The codes ``without`` are open to everybody, with an account or without.
    """

    def needed(request: Frame) -> Iterable[Access]:
        row = needs.get(request.code)
        try:
            return ADMINISTER if row is None else row(request)
        except RequestError:
            if access.enforcing:
                raise
            return ()  # the handler refuses the request with the reason

    def guard(connection: Connection, request: Frame) -> None:
        if request.code in without:
            dispatch(connection, request)
            return
        enforced = request.code in always
        # With permissive access control anybody may forward, and name any client.
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
