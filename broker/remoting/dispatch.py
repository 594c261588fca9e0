"""From a request's code to its handler, and from a handler's failure to an answer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from broker.errors import REFUSALS
from broker.remoting.error_responses import refused
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.frame import Frame

if TYPE_CHECKING:
    from broker.remoting.connection import Connection

Handler: TypeAlias = "Callable[[Connection, Frame], None]"
"""Takes a request. It answers at once or later, with ``connection.respond``, or raises
:class:`RequestError`, or one of ``REFUSALS``; it never waits."""

HANDLER_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    struct.error,
)
"""What a handler raises when a request is unlike anything it was written for. The request is
answered with code 1 and the others go on. A broken invariant (``AssertionError``) is not among
them: it must not be mistaken for a bad request."""


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
