"""The HTTP paths of the console: its pages, and the sessions of its users.

::

    GET  /                      redirects to the console
    GET  /console/...           its pages, and the files that they load
    POST /console/login         {"access_key": "...", "secret_key": "..."}
    POST /console/logout
    POST /console/...           requests of the pages; see :mod:`broker.console.site`

The pages and their modules are loaded at the first request: most nodes never show them.

A session is a token (:mod:`broker.security.tokens`) in a cookie. No script can read the cookie
(``HttpOnly``), and requests from pages of other sites do not contain it (``SameSite=Strict``).
Rejected: the token in ``sessionStorage``. Any script of the page could read it there, and a page
that is opened by its address would need a second request. The cookie counts only for the console.
The console asks other nodes as the account of its user, so each node checks the permissions of that
account.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib import import_module
from typing import NamedTuple, Protocol

from aiohttp import hdrs, web

from broker.context import BrokerContext
from broker.errors import AccessDeniedError, UnauthenticatedError
from broker.http.access import HttpAccess
from broker.http.cluster import ClusterHandler
from broker.http.errors import bad_request
from broker.http.json_body import decode_json
from broker.http.memory_budget import MEMORY
from broker.security.authorize import ANONYMOUS, DESCRIBE, Caller
from broker.security.credentials import Credentials
from broker.security.tokens import make_token

PAGES = "broker.console.site"
"""Loaded by name, so that a server without visitors loads neither templates nor the client
library."""

SESSION_SECONDS = 8 * 3600

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Visitor(NamedTuple):
    """The user of a page. Without access control the name is empty."""

    name: str = ""
    authorization: str | None = None
    """The header ``Authorization`` for requests to other nodes."""
    credentials: Credentials | None = None
    """The keys that sign requests to other nodes."""
    has_session: bool = False
    is_trusted: bool = False
    """Whether the user's own address is in the global white list."""


class Pages(Protocol):
    """The pages of the console."""

    async def get(self, visitor: Visitor, request: web.Request, path: str) -> web.Response:
        """Answers with a page, or a part of one."""

    async def post(
        self, visitor: Visitor, request: web.Request, path: str, values: dict[str, str]
    ) -> web.Response:
        """Carries out a request of a page."""

    def static(self, path: str) -> web.StreamResponse:
        """A file that pages load. It needs no account, because the login page loads files too."""

    def login(self, problem: str, *, whole: bool) -> web.Response:
        """The form for the keys of an account; ``whole``: as a page, else as a part of one."""

    async def close(self) -> None:
        """Closes the connections."""


class ConsoleRoutes:
    """Answers requests below ``/console/``."""

    def __init__(self, context: BrokerContext, cluster: ClusterHandler) -> None:
        self._context = context
        self._cluster = cluster
        self._access = HttpAccess(context.access) if context.access is not None else None
        self._loading: asyncio.Future[Pages] | None = None
        cluster_name = re.sub(r"[^A-Za-z0-9_-]", "_", context.config.cluster)
        self._cookie = f"dledger-{cluster_name}"
        """The name of the cookie. All ports of a host share cookies, and all nodes of a cluster
        share sessions."""

    async def root(self, _request: web.Request) -> web.Response:
        """See the module."""
        return web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: "/console/"})

    async def get(self, request: web.Request) -> web.StreamResponse:
        """See the module."""
        pages, path = await self._pages(), request.match_info["path"]
        if path.startswith("static/"):
            return pages.static(path.removeprefix("static/"))
        return await self._for_visitor(
            request, pages, lambda visitor: pages.get(visitor, request, path)
        )

    async def post(self, request: web.Request) -> web.StreamResponse:
        """See the module."""
        pages, path = await self._pages(), request.match_info["path"]
        values = _values(decode_json(await request.app[MEMORY].read(request) or b"{}"))
        if path == "login":
            return self._login(request, pages, values)
        if path == "logout":
            response = _to_first_page()
            response.del_cookie(self._cookie, path="/console")
            return response
        return await self._for_visitor(
            request, pages, lambda visitor: pages.post(visitor, request, path, values)
        )

    async def close(self, _app: web.Application) -> None:
        """Closes the connections of the pages."""
        if self._loading is not None:
            await (await self._loading).close()

    async def _pages(self) -> Pages:
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> Pages:
        module = await asyncio.to_thread(import_module, PAGES)
        pages: Pages = module.Site(self._context, self._cluster)
        return pages

    async def _for_visitor(
        self,
        request: web.Request,
        pages: Pages,
        answer: Callable[[Visitor], Awaitable[web.Response]],
    ) -> web.Response:
        whole = "HX-Request" not in request.headers
        try:
            visitor = self._visitor(request)
        except UnauthenticatedError as error:
            known = self._cookie in request.cookies or hdrs.AUTHORIZATION in request.headers
            response = pages.login(str(error) if known else "", whole=True)
            response.set_status(HTTPStatus.UNAUTHORIZED)
            if not whole:
                response.headers["HX-Redirect"] = "/console/"
            return protected(response)
        return protected(await answer(visitor))

    def _visitor(self, request: web.Request) -> Visitor:
        """Raises :class:`~broker.errors.AccessDeniedError`."""
        access, guard = self._context.access, self._access
        if access is None or guard is None:
            return Visitor()
        session, host = request.cookies.get(self._cookie, ""), request.remote or ""
        found: list[Caller] = []

        def caller() -> Caller:
            found.append(guard.caller(request, host, session=session))
            return found[0]

        access.check(caller, lambda: DESCRIBE, f"console, {host}")
        who = found[0] if found else ANONYMOUS
        told = request.headers.get(hdrs.AUTHORIZATION)
        if told is None and session:
            told = f"Bearer {session}"
        return Visitor(who.name, told, access.credentials(who), bool(session), who.trusted)

    def _login(self, request: web.Request, pages: Pages, values: dict[str, str]) -> web.Response:
        access, host = self._context.access, request.remote or ""
        if access is None:
            return _to_first_page()
        key, secret = values.get("access_key", "").strip(), values.get("secret_key", "").strip()
        try:
            access.check(
                lambda: access.with_password(key, secret, host),
                lambda: DESCRIBE,
                f"console, {host}",
                always=True,
            )
        except AccessDeniedError:
            response = pages.login("There is no account with these keys.", whole=False)
            response.set_status(HTTPStatus.UNAUTHORIZED)
            return protected(response)
        token = make_token(key, secret, self._context.wall_clock() + 1000 * SESSION_SECONDS)
        response = _to_first_page()
        response.set_cookie(
            self._cookie,
            token,
            max_age=SESSION_SECONDS,
            path="/console",
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return response


def protected(response: web.Response) -> web.Response:
    """Adds the headers of a page: it loads nothing from other hosts, and browsers do not cache
    it."""
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _to_first_page() -> web.Response:
    """An answer that makes htmx load the first page."""
    return protected(web.Response(status=HTTPStatus.OK, headers={"HX-Redirect": "/console/"}))


def _values(document: object) -> dict[str, str]:
    """The fields of a form; the values of a repeated field become lines."""
    if not isinstance(document, dict):
        raise bad_request("the request is not a JSON object")
    values = {}
    for name, value in document.items():
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in parts):
            raise bad_request(f"{name} is not a text")
        values[str(name)] = "\n".join(parts)
    return values
