"""Refuses requests that a browser sends for a page of another site.

A developer's browser reaches this port, and any page in it can send requests here. A password does
not stop such pages. Three checks do:

- *Host*: a page can resolve its own name to this node's address (DNS rebinding). For the browser it
  then has the node's origin. But its requests contain the page's name. Only requests to names and
  addresses of this node are answered (see :class:`OriginGuard`).
- *Origin* and *Sec-Fetch-Site*: browsers name another page there.
- *Content-Type*: a page can send a body without a preflight (a "simple request"), but not as
  ``application/json``. Programs send no Origin, so ``curl -d`` needs no header.

Sources: the Fetch standard (Origin, simple requests), the W3C's Fetch Metadata (Sec-Fetch-Site).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from broker.http.errors import HttpRefusedError, bad_request

_DEFAULT_PORTS = {"http": 80, "https": 443}
_OWN_SITES = frozenset(("same-origin", "none"))
"""Values of Sec-Fetch-Site: a page of this node, or the user of the browser."""

_PROTECTION = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""Sent with each answer: browsers let no other page show it or run it as a script."""


class _Authority(NamedTuple):
    """Host and port of a URL. The host is in lower case, an IPv6 address without brackets."""

    host: str
    port: int | None


class OriginGuard:
    """Checks requests to a node with the names and addresses ``hosts``.

    ``hosts`` have no ports. ``localhost``, loopback addresses, and the local address of a
    connection count as this node too.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = {normal_host(host) for host in hosts} | {"localhost"}

    @web.middleware
    async def refuse_foreign(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Raises :class:`~broker.http.errors.HttpRefusedError` for a request that must not be
        answered."""
        named = self._check_host(request)
        origin = _only(request, hdrs.ORIGIN)
        if origin is not None and not _is_same(origin, named):
            raise _forbidden(f"Origin is {origin!r}; a page of another site may not use this node")
        if not _is_own_site(request):
            raise _forbidden("a page of another site may not use this node")
        if (
            origin is not None
            and request.body_exists
            and request.content_type != "application/json"
        ):
            raise HttpRefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Type is {request.content_type}; "
                "a page must send its body as application/json",
            )
        return await handler(request)

    def _check_host(self, request: web.Request) -> _Authority:
        """The name and port of this node in the request."""
        host = _only(request, hdrs.HOST)
        if host is None:  # HTTP/1.0, which no browser speaks; in 1.1 aiohttp requires it
            return _Authority("", None)
        named = _authority(host)
        hosts = {named.host}
        if request.host != host:  # the target is a URL; its host counts (RFC 9112, 3.2.2)
            hosts.add(normal_host(request.host))
        for each in hosts:
            if not self._is_own(each, request):
                raise _forbidden(
                    f"Host is {each!r}, not a name of this server; "
                    "add names other than its addresses and localhost to http_hosts in its settings"
                )
        return named

    def _is_own(self, host: str, request: web.Request) -> bool:
        if host in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or host == _local_host(request)


async def protect(_request: web.Request, response: web.StreamResponse) -> None:
    """Tells browsers to hide the answer from other pages. For ``on_response_prepare``."""
    response.headers.update(_PROTECTION)


def normal_host(text: str) -> str:
    """A host in normal form: in lower case, an IP address as :mod:`ipaddress` writes it.

    The last dot of a name, and brackets, are removed.
    """
    host = text.lower().removesuffix(".")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _authority(text: str) -> _Authority:
    """Raises :class:`~broker.http.errors.HttpRefusedError` for text that is not a host with a
    port."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.netloc != text or "@" in text:
        raise bad_request(f"Host is {text!r}, not a host name")
    return _Authority(normal_host(host), port)


def _is_same(origin: str, named: _Authority) -> bool:
    """Whether the page that sent the request came from the same host and port."""
    scheme, separator, rest = origin.partition("://")
    usual = _DEFAULT_PORTS.get(scheme)
    if not separator or usual is None:
        return False
    try:
        page = _authority(rest)
    except HttpRefusedError:
        return False
    return (page.host, page.port or usual) == (named.host, named.port or usual)


def _is_own_site(request: web.Request) -> bool:
    """Whether the browser, if there is one, says that no page of another site caused the request.

    Following a link to this node is allowed: the page with the link does not see the answer.
    """
    site = _only(request, "Sec-Fetch-Site")
    if site is None or site in _OWN_SITES:
        return True
    follows = request.headers.get("Sec-Fetch-Mode") == "navigate"
    document = request.headers.get("Sec-Fetch-Dest") == "document"
    return follows and document and request.method in {hdrs.METH_GET, hdrs.METH_HEAD}


def _only(request: web.Request, name: str) -> str | None:
    """The header's value. Raises :class:`~broker.http.errors.HttpRefusedError` for a repeated
    header, because one reader may check the first value and another use the last."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise bad_request(f"{name} is sent {len(values)} times")
    return values[0].strip() if values else None


def _local_host(request: web.Request) -> str | None:
    """The local address of the connection."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return normal_host(name[0]) if isinstance(name, tuple) else None


def _forbidden(reason: str) -> HttpRefusedError:
    return HttpRefusedError(HTTPStatus.FORBIDDEN, reason)
