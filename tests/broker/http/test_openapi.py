"""The server keeps to ``openapi.yaml``: Schemathesis makes requests from it, sound ones and others,
and holds each answer against it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.client import parse_headers
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import requests
import schemathesis
import yaml
from hypothesis import assume, given, settings
from requests.adapters import HTTPAdapter
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from urllib3 import HTTPResponse

from broker.http.access import CONSOLE, WITHOUT_ACCOUNT
from broker.http.server import HttpServer
from tests.broker.http.site import HOST, Site, running_site
from tests.broker.pop.pop_client import Member
from tests.broker.remoting.processors.test_consumer_offsets import committed, stored
from tests.broker.transactions.transaction_client import half
from tests.support.virtual_network import NetworkedLoop

PAGE = Path(__file__).parents[3] / "broker/http/openapi.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(PAGE.read_text())
ADDRESS = f"http://{HOST.removeprefix('Host: ')}"
THERE = {"topic": "orders", "queue": 0}
"""Of paths: where there are messages."""
TOPIC = re.compile(DOCUMENT["components"]["parameters"]["topic"]["schema"]["pattern"])
QUEUES = 4
"""Of each topic."""


def tightened(node: Any) -> Any:
    """A copy in which an answer has no field beside those described. To clients that stays open."""
    if isinstance(node, list):
        return [tightened(each) for each in node]
    if not isinstance(node, dict):
        return node
    node = {name: tightened(each) for name, each in node.items()}
    if node.get("type") == "object" and {"properties", "required"} <= node.keys():
        node["additionalProperties"] = False
    return node


SCHEMA = schemathesis.openapi.from_dict(tightened(DOCUMENT))
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]


class Wire(HTTPAdapter):
    """Requests go to a site in memory."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self.recall_handle = ""
        """Of a message that waits."""

    def send(  # type: ignore[override]  # there is no timeout, proxy or certificate
        self, request: requests.PreparedRequest, **_: Any
    ) -> requests.Response:
        asked = self._ask(request, request.body or b"")
        head, content = self._site.broker.loop.run_until_complete(asked)
        first, _end, rest = head.partition(b"\r\n")
        raw = HTTPResponse(
            BytesIO(content),
            headers=dict(parse_headers(BytesIO(rest + b"\r\n\r\n"))),
            status=int(first.split()[1]),
            preload_content=False,
        )
        return self.build_response(request, raw)

    async def _ask(self, request: requests.PreparedRequest, body: Any) -> tuple[bytes, bytes]:
        body = body.encode() if isinstance(body, str) else body
        headers = [
            f"{name}: {value.decode('latin-1') if isinstance(value, bytes) else value}"
            for name, value in request.headers.items()
            if name.lower() not in {"connection", "content-length"}
        ]
        method, path = request.method or "", request.path_url
        connection, curl = self._site.begin(method, path, len(body), (HOST, *headers))
        connection.write(body)
        return await curl.parts()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[requests.Session]:
    """To a site with something of all that is told."""
    loop = NetworkedLoop()
    running = running_site(loop, tmp_path, clock_runs=True)
    site = loop.run_until_complete(running.__aenter__())

    async def fill() -> None:
        await stored(site.broker)
        await committed(site.broker, "3")
        await half(site.broker)
        await site.broker.send("orders", 0, b"later", "DELAY\x0118\x02")
        await Member(site.broker).receive(1)
        timed = {"body": "later", "properties": {"UNIQ_KEY": "k", "TIMER_DELAY_SEC": "86400"}}
        adapter.recall_handle = (await site.post("orders", timed))[1]["recall_handle"]

    adapter = Wire(site)
    loop.run_until_complete(fill())
    session = requests.Session()
    session.mount("http://", adapter)
    yield session
    loop.run_until_complete(running.__aexit__(None, None, None))
    loop.close()


def cases() -> Iterator[Any]:
    """Operations; where in their path, if it names something; sound requests or others, if there
    is something to get wrong."""
    for operation in OPERATIONS:
        named = {name: value for name, value in THERE.items() if name in operation.path}
        for path in (None, named) if named else (None,):
            modes = [GenerationMode.POSITIVE]
            if operation.body or operation.query or (operation.path_parameters and not path):
                modes.append(GenerationMode.NEGATIVE)
            for mode in modes:
                where = " there" if path else ""
                name = f"{operation.label}{where}, {mode.value}"
                yield pytest.param(operation, path, mode, id=name)


@pytest.mark.parametrize(("operation", "path", "mode"), list(cases()))
def test_requests_are_answered_as_described(
    wire: requests.Session,
    operation: APIOperation[Any, Any, Any, Any],
    path: dict[str, Any] | None,
    mode: GenerationMode,
) -> None:
    statuses = set()

    @settings(max_examples=settings().max_examples // 2)
    @given(operation.as_strategy(mode, path_parameters=path))
    def ask(case: schemathesis.Case[Any]) -> None:
        if mode.is_positive and "topic" in case.path_parameters:
            # Schemathesis takes a name such as t%02 for one that is quoted already.
            assume(TOPIC.fullmatch(unquote(case.path_parameters["topic"])))
        body: Any = case.body
        if mode.is_positive and isinstance(body, dict) and "queue_id" in body:
            body["queue_id"] %= QUEUES  # how many there are is no matter of the description
        if mode.is_positive and isinstance(body, dict) and "recall_handle" in body:
            adapter = wire.get_adapter(ADDRESS)
            assert isinstance(adapter, Wire)
            body["recall_handle"] = adapter.recall_handle  # nor is what an answer gave
        statuses.add(case.call_and_validate(base_url=ADDRESS, session=wire).status_code)

    ask()
    if mode.is_positive and (path or not operation.path_parameters):
        assert HTTPStatus.OK in statuses


def described(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {
        (path, method.upper())
        for path, methods in document["paths"].items()
        for method in methods
        if method != "parameters"
    }


async def test_every_path_is_described_and_no_other(site: Site) -> None:
    routes = HttpServer(site.broker.broker.context).app().router.routes()
    served = {
        (route.resource.canonical, route.method)
        for route in routes
        if route.resource is not None and route.method != "HEAD"
    }
    assert described(DOCUMENT) == {each for each in served if each[0] not in CONSOLE}


async def test_the_description_is_served_to_anybody(site: Site) -> None:
    head, body = await site.begin("GET", "/openapi.yaml", 0)[1].parts()
    assert b"Content-Type: application/yaml" in head
    assert body == PAGE.read_bytes()
    assert "/openapi.yaml" in WITHOUT_ACCOUNT
