"""A request that one broker of a group forwards to another, and its wire format.

Wire: request code :data:`RequestCode.FORWARD`. Its body is that of the request. It has two fields:
``forwarded`` holds the request's code, its version and the address of the client, separated by
spaces; ``fields`` holds the ext fields of the request as a JSON object. So no field of the request
is mistaken for one of the forwarding broker.

The broker that forwards for a client beyond a quota holds it. The leader asks for that on the same
connection, one-way, with code :data:`RequestCode.HOLD_CLIENT`: ``client`` is the address as above,
``ms`` the time in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import orjson

from broker.remoting.connection import Connection
from broker.remoting.protocol.addresses import NO_HOST, host_bytes
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import ExtValue, Frame
from dledger.wire.endpoint import Endpoint
from store.text_numbers import whole_number

FORWARDED = "forwarded"
FIELDS = "fields"
CLIENT = "client"
HOLD_MS = "ms"


class ForwardedFrame(Frame):
    """A request that another broker of the group has forwarded.

    ``client`` is the address of the client, ``host:port``; ``client_host_bytes`` is the same as a
    message record stores it.
    """

    __slots__ = ("client", "client_host_bytes")

    client: str
    client_host_bytes: bytes


def client_host_bytes(connection: Connection, request: Frame) -> bytes:
    """The client's address, as a message record stores it."""
    if type(request) is ForwardedFrame:
        return request.client_host_bytes
    return connection.remote_host_bytes


@lru_cache(maxsize=1024)
def _record_host(address: str) -> bytes:
    return host_bytes(*Endpoint.parse(address))


def client_address(connection: Connection, request: Frame) -> str:
    """The client's address, as ``host:port``."""
    return request.client if isinstance(request, ForwardedFrame) else connection.remote_address


def pack_forwarded(request: Frame, client: str) -> Mapping[str, str]:
    """The fields of a request that is forwarded for ``client``."""
    return {
        FORWARDED: f"{request.code} {request.version} {client}",
        FIELDS: orjson.dumps(request.ext).decode(),
    }


def pack_hold(client: str, seconds: float) -> Mapping[str, str]:
    """The fields of a request to hold a client for ``seconds``."""
    return {CLIENT: client, HOLD_MS: str(math.ceil(seconds * 1000))}


def unpack_hold(request: Frame) -> tuple[str, float]:
    """The client and the seconds in such a request. Raises
    :class:`~broker.remoting.protocol.errors.FieldError`."""
    return ext_str(request, CLIENT), ext_int(request, HOLD_MS, minimum=0) / 1000


def unpack_fields(request: Frame) -> dict[str, ExtValue]:
    """The fields of the request that another broker has packed into a field of this one.

    Raises :class:`~broker.remoting.protocol.errors.FieldError`.
    """
    try:
        fields = orjson.loads(ext_str(request, FIELDS))
    except orjson.JSONDecodeError as error:
        raise FieldError(f"{FIELDS} is not JSON: {error}") from None
    if type(fields) is not dict:
        raise FieldError(f"{FIELDS} is not a JSON object")
    return fields


def unpack_forwarded(request: Frame) -> ForwardedFrame:
    """The request that was forwarded.

    Raises :class:`~broker.remoting.protocol.errors.FieldError`.
    """
    try:
        number, version_text, client = ext_str(request, FORWARDED).split(" ")
        code, version = whole_number(number), whole_number(version_text)
        if min(code, version) < 0:
            raise ValueError
    except ValueError:
        raise FieldError(
            f"{FORWARDED} is not the code, the version and the client of a request"
        ) from None
    if code == RequestCode.FORWARD:
        raise FieldError("a forwarded request is not forwarded again")
    ext = unpack_fields(request)
    frame = ForwardedFrame(
        code,
        request.opaque,
        request.flag,
        version,
        ext=ext,
        body=request.body,
        serialization=request.serialization,
    )
    frame.client = client
    try:
        frame.client_host_bytes = _record_host(client)
    except ValueError:
        frame.client_host_bytes = NO_HOST
    return frame
