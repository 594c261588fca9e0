"""The errors of the remoting layer: the peer's mistakes, refused requests, failed calls."""

from __future__ import annotations

import struct

from broker.remoting.protocol.codes import ResponseCode
from store.quoting import shortened


def code_word(code: int) -> str:
    """A response code in metrics: its name in lower case."""
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return "other"


class RemotingError(Exception):
    """Base of everything that the remoting layer raises on purpose."""


class FrameError(RemotingError):
    """The peer sent bytes that are no frame: the mistake, and its byte in the frame.

    After one of these the stream cannot be followed any more, so its connection is closed.
    """

    def __init__(self, what: str, *, byte: int = 0) -> None:
        self.what = what = shortened(what)
        self.byte = byte
        super().__init__(f"frame, byte {byte}: {what}")


class RequestError(RemotingError):
    """A request is refused with a response code and a remark; handlers may raise it."""

    def __init__(self, code: int, remark: str, reason: str = "") -> None:
        """``reason`` is the word under which it is counted; by default that of the code."""
        self.code = code
        self.reason = reason or code_word(code)
        # Many repeat a name or a text of the request, which may be of any length.
        self.remark = remark = shortened(remark)
        super().__init__(f"response code {code}: {remark}")


class FieldError(RequestError):
    """A field of a request is missing or is not what it must be (response code 1)."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


HANDLER_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    struct.error,
)
"""Raised by a handler for a request that is unlike anything it was written for. The request is
answered with code 1 and the others go on. A broken invariant (``AssertionError``) is not among
them: it must not be mistaken for a bad request."""


class CallError(RemotingError):
    """A request got no answer. ``retriable``: whether sending it again can succeed.

    Whether the peer carried it out is unknown unless the class says otherwise.
    """

    retriable = True

    def __init__(self, address: str, what: str) -> None:
        self.address = address
        super().__init__(f"{address}: {what}")


class ConnectFailedError(CallError):
    """No connection could be made, so the request was never sent."""


class ConnectionLostError(CallError):
    """The connection ended before the answer came."""


class RequestTimeoutError(CallError):
    """No answer came in the time that the caller gave."""


class TooManyRequestsError(CallError):
    """The connection already waits for as many answers as it may; the request was not sent."""


class ClientNotOnlineError(CallError):
    """No member of the group has that client, so the request was never sent to it."""

    def __init__(self, client_id: str) -> None:
        super().__init__(shortened(client_id), "the client is not online")


class ClientClosedError(CallError):
    """This side has been closed and sends nothing any more."""

    retriable = False
