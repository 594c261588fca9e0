"""Finds the handler of a request's code."""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import REFUSALS
from broker.remoting.connection import Connection, Handler
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import HANDLER_FAULTS, RequestError
from broker.remoting.protocol.frame import Frame


def dispatch_by_code(handlers: Mapping[int, Handler]) -> Handler:
    """A handler that passes each request to the handler of its code, and refuses other codes."""

    def dispatch(connection: Connection, request: Frame) -> None:
        handler = handlers.get(request.code)
        if handler is None:
            raise RequestError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"request code {request.code} is not supported",
            )
        try:
            handler(connection, request)
        except REFUSALS as error:
            respond_refusal(connection, request, error)

    return dispatch


def serve(handler: Handler, connection: Connection, request: Frame) -> None:
    """Calls a handler after the turn in which the request came, and answers its errors."""
    try:
        handler(connection, request)
    except RequestError as error:
        connection.refusals[error.reason] += 1
        connection.respond(request, error.code, error.remark)
    except REFUSALS as error:
        respond_refusal(connection, request, error)
    except HANDLER_FAULTS as error:
        connection.respond_fault(request, error)
