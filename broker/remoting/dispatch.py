"""From a request's code to its handler."""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import REFUSALS
from broker.remoting.connection import Connection, Handler
from broker.remoting.error_responses import refused
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.frame import Frame


def dispatch_by_code(handlers: Mapping[int, Handler]) -> Handler:
    """A handler that passes each request to the one of its code, and refuses codes without one."""

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
            raise refused(error) from error

    return dispatch
