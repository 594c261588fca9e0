"""Permissions over HTTP: the one place that identifies a request's caller and checks its
permission.

A caller sends ``Authorization: Basic`` with an access key and its secret key, or ``Bearer`` with a
token (:mod:`broker.security.tokens`). The console has such a token in a cookie.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from broker.errors import UnauthenticatedError
from broker.security.access_control import AccessControl
from broker.security.authorize import ADMINISTER, DESCRIBE, Access, Caller, consume, publish


def _describe(_request: web.Request) -> Iterable[Access]:
    return DESCRIBE


def _administer(_request: web.Request) -> Iterable[Access]:
    return ADMINISTER


def _publish(request: web.Request) -> Iterable[Access]:
    return (publish(request.match_info["topic"]),)


def _consume(request: web.Request) -> Iterable[Access]:
    return (consume(request.match_info["topic"]),)


HTTP_ACCESS: Mapping[str, Callable[[web.Request], Iterable[Access]]] = {
    "/audit": _describe,
    "/cluster": _describe,
    "/groups": _describe,
    "/history": _describe,
    "/metrics": _describe,
    "/nodes": _describe,
    "/snapshot": _administer,
    "/status": _describe,
    "/topics": _describe,
    "/waiting": _describe,
    "/topics/{topic}/messages": _publish,
    "/topics/{topic}/recalls": _publish,
    "/topics/{topic}/queues/{queue}/messages": _consume,
}
"""The permissions that a request needs, by path."""

WITHOUT_ACCOUNT = frozenset(("/healthz", "/livez", "/openapi.yaml", "/readyz"))
"""Paths that need no account. Load balancers ask whether this node runs and serves. The API
description is the same on every node."""

ACCOUNT = web.RequestKey("account", str)
"""A key of a request: the access key of its caller; empty without one."""


CONSOLE = frozenset(("/", "/console/{path}"))
"""Paths that identify their caller themselves, and show how to log in
(:mod:`broker.http.console`)."""


class HttpAccess:
    """Checks the requests of one HTTP port."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Raises :class:`~broker.errors.AccessDeniedError` if the caller lacks the permission. An
        unknown path is passed on, and refused later."""
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        if path and path not in WITHOUT_ACCOUNT | CONSOLE:
            host = request.remote or ""

            def caller() -> Caller:
                found = self.caller(request, host)
                request[ACCOUNT] = found.account.access_key if found.account is not None else ""
                return found

            self._access.check(
                caller,
                lambda: HTTP_ACCESS.get(path, _administer)(request),
                f"HTTP, {host}",
            )
        return await handler(request)

    def caller(self, request: web.Request, host: str, *, session: str = "") -> Caller:
        """The caller of a request from ``host``. The token of a ``session`` counts if the request
        has no ``Authorization``. Raises :class:`~broker.errors.UnauthenticatedError`."""
        values = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not values and session:
            return self._access.with_token(session, host)
        if not values:
            return self._access.unknown(host)
        scheme, _, told = values[0].strip().partition(" ")
        if len(values) == 1 and scheme.lower() == "bearer":
            return self._access.with_token(told.strip(), host)
        if len(values) == 1 and scheme.lower() == "basic":
            try:
                keys = base64.b64decode(told.strip(), validate=True).decode()
            except (binascii.Error, ValueError):
                raise UnauthenticatedError("Authorization is not Basic as in RFC 7617") from None
            access_key, _, secret_key = keys.partition(":")
            return self._access.with_password(access_key, secret_key, host)
        raise UnauthenticatedError("Authorization is neither Basic nor Bearer")
