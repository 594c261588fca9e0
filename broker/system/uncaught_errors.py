"""Uncaught errors in the event loop: some of them stop a node."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Mapping
from socket import gaierror

SOCKET_CONTEXT_KEYS = ("transport", "socket")
"""Keys of asyncio's context for a failed connection or listening socket."""

NETWORK_ERRNOS = frozenset(
    {
        errno.EADDRNOTAVAIL,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
    }
)
"""Errors of connecting, sending and receiving, which files do not raise (``connect(2)``)."""


DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors because too many files and connections are open. The open ones still work."""


def fatal_error_of(context: Mapping[str, object]) -> BaseException | None:
    """The error for which a node must stop, from the context of asyncio's exception handler.

    None if a single connection has failed, because others replace it. An error of a disk does not
    count as such, although it is an ``OSError`` too.
    """
    error = context.get("exception")
    if not isinstance(error, Exception):
        return None
    return None if isinstance(error, OSError) and _is_of_a_socket(context, error) else error


def _is_of_a_socket(context: Mapping[str, object], error: OSError) -> bool:
    return (
        isinstance(error, ConnectionError | TimeoutError | gaierror | ssl.SSLError)
        or error.errno in NETWORK_ERRNOS | DESCRIPTOR_ERRNOS
        or any(key in context for key in SOCKET_CONTEXT_KEYS)
    )
