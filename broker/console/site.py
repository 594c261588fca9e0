"""The pages of the console by path, and the changes that they request.

::

    GET  ""                     the overview
    GET  topics, topics/T       and messages, message, traces, groups, groups/G, dead, dead/G,
                                waiting, quotas, members, findings: the pages
    GET  charts?hours=1         the data of the charts, as JSON
    GET  action/NAME?field=...  the form of a change, for the dialog
    POST action/NAME            {"step": "edit" | "review" | "run", ...}: the form again, the
                                question with the command that does the same, or the change itself
    GET  jobs/N                 the result of a change
"""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from aiohttp import web

from broker.admin.membership import member_addresses
from broker.command_error import CommandError
from broker.console.actions import dead_letters, groups, members, messages, quotas, topics
from broker.console.actions.action import Action, Values
from broker.console.pages import charts as chart_figures
from broker.console.pages import groups as group_pages
from broker.console.pages import messages as message_pages
from broker.console.pages import nodes as node_pages
from broker.console.pages import quotas as quota_pages
from broker.console.pages import topics as topic_pages
from broker.console.pages.overview import overview
from broker.console.visits.jobs import FAILURES, Job, Jobs, told
from broker.console.visits.templating import render, static_bytes, static_files
from broker.console.visits.visit import Clients, Page, Visit
from broker.context import BrokerContext
from broker.http.cluster import ClusterHandler
from broker.http.console import Visitor
from broker.http.errors import HttpRefusedError, json_response
from store.text_numbers import whole_number

MENU = (
    ("", "Overview"),
    ("topics", "Topics"),
    ("groups", "Groups"),
    ("messages", "Messages"),
    ("dead", "Dead letters"),
    ("waiting", "Waiting"),
    ("traces", "Traces"),
    ("quotas", "Quotas"),
    ("members", "Members"),
    ("findings", "Findings"),
)

PAGES: Mapping[str, Callable[[Visit], Awaitable[Page]]] = {
    "": overview,
    "topics": topic_pages.topics,
    "groups": group_pages.groups,
    "messages": message_pages.messages,
    "message": message_pages.message,
    "dead": group_pages.dead_letters,
    "waiting": node_pages.waiting,
    "traces": message_pages.traces,
    "quotas": quota_pages.quotas,
    "members": node_pages.members,
    "findings": node_pages.findings,
}

DETAILS: Mapping[str, Callable[[Visit, str], Awaitable[Page]]] = {
    "topics": topic_pages.topic,
    "groups": group_pages.group,
    "dead": group_pages.dead_letters_of,
}
"""Pages of one item, whose name follows in the path."""

ACTIONS: Mapping[str, Action] = {
    action.name: action
    for module in (topics, messages, groups, dead_letters, quotas, members)
    for action in module.ACTIONS
}

_STATIC_SECONDS = 3600


class Site:
    """Answers the requests that :class:`~broker.http.console.ConsoleRoutes` has checked."""

    def __init__(self, context: BrokerContext, cluster: ClusterHandler) -> None:
        self._context = context
        self._cluster = cluster
        self._clients = Clients(context)
        self._jobs = Jobs()

    async def get(self, visitor: Visitor, request: web.Request, path: str) -> web.Response:
        """See the module."""
        first, _, rest = path.strip("/").partition("/")
        async with self._visit(visitor, request.query) as visit:
            if first == "charts":
                return json_response(await chart_figures.charts(visit))
            if first == "action":
                return await self._form(visit, _action(rest), dict(request.query))
            if first == "jobs":
                return _job(self._known_job(rest, visitor))
            return await self._page(visit, first, rest)

    async def post(
        self, visitor: Visitor, request: web.Request, path: str, values: dict[str, str]
    ) -> web.Response:
        """See the module."""
        first, _, rest = path.partition("/")
        if first != "action":
            raise HttpRefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        action, step = _action(rest), values.pop("step", "review")
        values = {name: value.strip() for name, value in values.items() if value.strip()}
        if step == "run":
            return await self._run(visitor, action, values)
        async with self._visit(visitor, request.query) as visit:
            if step == "edit":
                return await self._form(visit, action, values)
            return await _review(visit, action, values)

    def static(self, path: str) -> web.StreamResponse:
        """One of the files that pages load."""
        if path not in static_files():
            raise HttpRefusedError(HTTPStatus.NOT_FOUND, "there is no such file")
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        return web.Response(
            body=static_bytes(path),
            content_type=kind,
            headers={"Cache-Control": f"max-age={_STATIC_SECONDS}"},
        )

    def login(self, problem: str, *, whole: bool) -> web.Response:
        template = "login.html" if whole else "login_form.html"
        return _html(
            render(template, title="Log in", cluster=self._context.config.cluster, problem=problem)
        )

    async def close(self) -> None:
        await self._jobs.close()
        await self._clients.close()

    @asynccontextmanager
    async def _visit(self, visitor: Visitor, query: Mapping[str, str]) -> AsyncIterator[Visit]:
        security = self._clients.security(visitor)
        with self._clients.admin(security) as admin:
            async with self._cluster.view(visitor.authorization) as view:
                yield Visit(visitor, self._context, view, admin, security, dict(query))

    async def _page(self, visit: Visit, first: str, rest: str) -> web.Response:
        status = HTTPStatus.OK
        try:
            if rest and first in DETAILS:
                page = await DETAILS[first](visit, rest)
            elif not rest and first in PAGES:
                page = await PAGES[first](visit)
            else:
                raise HttpRefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        except FAILURES as error:
            page = Page("problem.html", "Not shown", first, {"problem": told(error)})
        except HttpRefusedError as error:
            status = HTTPStatus(error.status)
            page = Page("problem.html", "Not found", first, {"problem": error.reason})
        config = self._context.config
        text = render(
            page.template,
            **page.values,
            title=page.title,
            section=page.section,
            menu=MENU,
            cluster=config.cluster,
            served_by=config.name,
            peers=self._peers(),
            visitor=visit.visitor,
        )
        return _html(text, status)

    def _peers(self) -> list[tuple[str, str]]:
        """The other members of the group with their HTTP addresses, to which a page turns if this
        node does not answer."""
        config = self._context.config
        members = member_addresses(config, self._context.node.core.configuration)
        return [
            (f"{config.group}/{node}", at.http)
            for node, at in members.items()
            if at.http and node != config.node
        ]

    async def _form(self, visit: Visit, action: Action, values: Values) -> web.Response:
        values = await action.suggest(visit, values)
        if action.asks_at_once:
            return await _review(visit, action, values)
        return _form(action, values, "")

    async def _run(self, visitor: Visitor, action: Action, values: Values) -> web.Response:
        async def work() -> str:
            async with self._visit(visitor, {}) as visit:
                return await action.run(visit, values)

        try:
            action.arguments(values)
            job = await self._jobs.begin(action.title, visitor.name, work())
        except CommandError as error:
            return _form(action, values, told(error))
        job.leads_to = action.leads_to
        return _job(job)

    def _known_job(self, number: str, visitor: Visitor) -> Job:
        with suppress(ValueError):
            job = self._jobs.find(whole_number(number), visitor.name)
            if job is not None:
                return job
        raise HttpRefusedError(HTTPStatus.NOT_FOUND, "there is no such change")


def _action(name: str) -> Action:
    if name not in ACTIONS:
        raise HttpRefusedError(HTTPStatus.NOT_FOUND, "there is no such change")
    return ACTIONS[name]


async def _review(visit: Visit, action: Action, values: Values) -> web.Response:
    try:
        command = action.command(visit, values)
        preview = await action.preview(visit, values)
    except FAILURES as error:
        if action.asks_at_once:
            return _html(render("dialog_problem.html", action=action, problem=told(error)))
        return _form(action, values, told(error))
    return _html(
        render("dialog_review.html", action=action, values=values, preview=preview, command=command)
    )


def _form(action: Action, values: Values, problem: str) -> web.Response:
    return _html(render("dialog_form.html", action=action, values=values, problem=problem))


def _job(job: Job) -> web.Response:
    if not job.done:
        return _html(render("dialog_job.html", job=job, done=False, good=False, text=""))
    good, text = job.outcome
    response = _html(render("dialog_job.html", job=job, done=True, good=good, text=text))
    if good:
        response.headers["HX-Trigger"] = "changed"
    return response


def _html(text: str, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(
        body=text.encode(), content_type="text/html", charset="utf-8", status=status
    )
