"""Who may ask: what a browser sends on behalf of a page that is not this node's own is refused.

A developer's browser reaches this port, and any page in it can send requests here. No password
keeps such pages out; three checks do:

- *Host*: a page that has its own name resolved to this node's address (DNS rebinding) has the same
  origin as the node, as the browser sees it. But the request bears the page's name. Only names and
  addresses of this node are answered (see :class:`OriginGuard`).
- *Origin* and *Sec-Fetch-Site*: what another page sends says so there.
- *Content-Type*: a page can send a body without being asked first (a "simple request"), but not as
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

from broker.http.errors import HttpRefusedError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_OWN_SITES = frozenset(("same-origin", "none"))
"""Of Sec-Fetch-Site: a page of this node, or the person at the browser."""

_PROTECTION = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""Sent with each answer: no other page shows it, or takes it for a script."""


class _Authority(NamedTuple):
    """Host and port as a URL names them. The host is in lower case, an address without brackets."""

    host: str
    port: int | None


class OriginGuard:
    """Checks requests for a node that listens on, or is told to be, ``hosts``.

    ``hosts`` are names and addresses without ports. Beside them, ``localhost``, loopback addresses,
    and the address at which a connection came in are this node.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = {normal_host(host) for host in hosts} | {"localhost"}

    @web.middleware
    async def refuse_foreign(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Raises :class:`~broker.http.errors.HttpRefusedError` for what must not be answered."""
        self.check(request)
        return await handler(request)

    def check(self, request: web.Request) -> None:
        """See :meth:`refuse_foreign`."""
        named = self._check_host(request)
        origin = _only(request, hdrs.ORIGIN)
        if origin is not None and not _is_same(origin, named):
            raise _forbidden(f"Origin is {origin!r}; a page from elsewhere may not use this node")
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

    def _check_host(self, request: web.Request) -> _Authority:
        """What the request calls this node."""
        host = _only(request, hdrs.HOST)
        if host is None:  # HTTP/1.0, which no browser speaks; in 1.1 aiohttp asks for it
            return _Authority("", None)
        named = _authority(host)
        hosts = {named.host}
        if request.host != host:  # the target is a whole URL, whose host counts (RFC 9112, 3.2.2)
            hosts.add(normal_host(request.host))
        for each in hosts:
            if not self._is_own(each, request):
                raise _forbidden(
                    f"Host is {each!r}, which is no name of this node; "
                    "other names than its addresses and localhost stand in http_hosts of node.toml"
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


def protect(response: web.StreamResponse) -> None:
    """Tells browsers to give the answer to no other page."""
    response.headers.update(_PROTECTION)


def normal_host(text: str) -> str:
    """A host as it is compared: in lower case, an IP address as :mod:`ipaddress` writes it.

    A dot at the end of a name, and brackets, do not count.
    """
    host = text.lower().removesuffix(".")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _authority(text: str) -> _Authority:
    """Raises :class:`~broker.http.errors.HttpRefusedError` for what is no host with a port."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.netloc != text or "@" in text:
        raise HttpRefusedError(HTTPStatus.BAD_REQUEST, f"Host is {text!r}, which is no host")
    return _Authority(normal_host(host), port)


def _is_same(origin: str, named: _Authority) -> bool:
    """Whether the page that sent this was itself got from where this request goes."""
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
    """Whether the browser, if it is one, says that no other site's page is behind this.

    To follow a link to this node is no use of it by the page that has the link.
    """
    site = _only(request, "Sec-Fetch-Site")
    if site is None or site in _OWN_SITES:
        return True
    follows = request.headers.get("Sec-Fetch-Mode") == "navigate"
    document = request.headers.get("Sec-Fetch-Dest") == "document"
    return follows and document and request.method in {hdrs.METH_GET, hdrs.METH_HEAD}


def _only(request: web.Request, name: str) -> str | None:
    """The header's value. Raises :class:`~broker.http.errors.HttpRefusedError` where it is there
    twice: who reads the first may check another than who reads the last."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise HttpRefusedError(HTTPStatus.BAD_REQUEST, f"{name} is there {len(values)} times")
    return values[0].strip() if values else None


def _local_host(request: web.Request) -> str | None:
    """The address at which the connection came in."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return normal_host(name[0]) if isinstance(name, tuple) else None


def _forbidden(what: str) -> HttpRefusedError:
    return HttpRefusedError(HTTPStatus.FORBIDDEN, what)
