"""Finds the handler of a request's code."""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import ANSWERED
from broker.remoting.connection import Connection, Handler
from broker.remoting.error_responses import HANDLED, respond_error, respond_refusal
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
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
        except ANSWERED as error:
            respond_refusal(connection, request, error)

    return dispatch


def serve(handler: Handler, connection: Connection, request: Frame) -> None:
    """Calls a handler after the turn in which the request came, and answers its errors."""
    try:
        handler(connection, request)
    except HANDLED as error:
        respond_error(connection, request, error)
