"""The errors of the remoting layer: the peer's mistakes, refused requests, failed calls."""

from __future__ import annotations

import struct

from broker.remoting.protocol.codes import ResponseCode
from store.quoting import shortened


def code_word(code: int) -> str:
    """The label of a response code in metrics: its name in lower case."""
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return "other"


class RemotingError(Exception):
    """Base of everything that the remoting layer raises on purpose."""


class FrameError(RemotingError):
    """The peer sent bytes that are no frame. The text has the mistake and its byte in the frame.

    The rest of the stream cannot be parsed then, so the connection is closed.
    """

    def __init__(self, reason: str, *, byte: int = 0) -> None:
        self.reason = reason = shortened(reason)
        self.byte = byte
        super().__init__(f"frame, byte {byte}: {reason}")


class RequestError(RemotingError):
    """A request is refused with a response code and a remark; handlers may raise it."""

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.reason = code_word(code)
        """The label under which the refusal is counted."""
        # Many remarks repeat a name of the request, which may be of any length.
        self.remark = remark = shortened(remark)
        super().__init__(f"response code {code}: {remark}")


class FieldError(RequestError):
    """A field of a request is missing or is not what it must be (response code 1)."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class TooManyError(FieldError):
    """A request has more of something, or would make more, than is allowed."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"{what}, at most {most} are allowed")


HANDLER_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of a handler that met a request of an unexpected form. The request is answered with code
1, and the other requests go on. ``AssertionError`` is not among them: a broken invariant must not
be mistaken for a bad request."""


class CallError(RemotingError):
    """A request got no answer. ``retriable``: whether a retry can succeed. ``was_sent``: whether it
    may have left, so that the peer may have carried it out."""

    retriable = True
    was_sent = True

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        super().__init__(f"{address}: {reason}")


class ConnectFailedError(CallError):
    """No connection could be made."""

    was_sent = False


class ConnectionLostError(CallError):
    """The connection ended before the answer came."""


class RequestTimeoutError(CallError):
    """No answer came in the time that the caller gave."""


class TooManyRequestsError(CallError):
    """Too many requests wait on the connection already."""

    was_sent = False


class RequestTooLargeError(CallError):
    """No frame can hold the request. The peer would close the connection, and all other requests on
    it would fail."""

    retriable = False
    was_sent = False


class ClientNotOnlineError(CallError):
    """No member of the group has that client."""

    was_sent = False

    def __init__(self, client_id: str) -> None:
        super().__init__(shortened(client_id), "the client is not online")


class ClientClosedError(CallError):
    """This side has been closed and sends nothing any more."""

    retriable = False
