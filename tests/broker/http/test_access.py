"""Accounts over HTTP: the same as over the remoting port, by Basic and by Bearer."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.config.security_config import ENFORCING, PERMISSIVE, SecurityConfig
from broker.http.access import CONSOLE, HTTP_ACCESS, WITHOUT_ACCOUNT
from broker.http.server import HttpServer
from broker.remoting.protocol.codes import RequestCode
from broker.security.cluster_secrets import ClusterSecrets
from broker.security.credentials import ClientSecurity, Credentials
from broker.security.tokens import make_token
from tests.broker.http.site import HOST, Site, running_site
from tests.broker.single_broker import NOW_MS
from tests.support.virtual_network import NetworkedLoop

ADMIN = Credentials("admin-1234", "admin-secret")
WRITER = Credentials("writer-123", "writer-secret")
PRODUCE, CONSUME = "/topics/orders/messages", "/topics/orders/queues/0/messages"


@asynccontextmanager
async def guarded_site(
    loop: NetworkedLoop, data: Path, mode: str = ENFORCING
) -> AsyncIterator[Site]:
    """It has one account besides the first admin's."""
    async with running_site(
        loop,
        data,
        secrets=ClusterSecrets((b"\x07" * 32,), ADMIN),
        client_security=ClientSecurity(ADMIN),
        security=SecurityConfig(directory="/s", access_control=mode),
    ) as site:
        fields = {"accessKey": WRITER.access_key, "secretKey": WRITER.secret_key}
        code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
        await asyncio.sleep(2)  # the first admin is written
        answer = await site.broker.ask(code, fields | {"topicPerms": "orders=PUB"})
        assert answer.code == 0, answer
        await site.broker.create_topic("orders")
        yield site


@pytest.fixture
async def site(loop: NetworkedLoop, tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded_site(loop, tmp_path) as site:
        yield site


def basic(keys: Credentials) -> str:
    return f"Authorization: {keys.http_header()['Authorization']}"


def bearer(keys: Credentials, expires_ms: int = NOW_MS + 1000) -> str:
    return f"Authorization: Bearer {make_token(keys.access_key, keys.secret_key, expires_ms)}"


async def test_every_path_has_a_row_and_no_other_has(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_site(loop, tmp_path) as site:
        routes = HttpServer(site.broker.broker.context).app().router.resources()
        assert {each.canonical for each in routes} == HTTP_ACCESS.keys() | WITHOUT_ACCOUNT | CONSOLE


async def test_nobody_gets_more_than_whether_the_node_is_well(site: Site) -> None:
    assert (await site.ask("GET", "/healthz"))[0] == 200
    for path in HTTP_ACCESS:
        filled = re.sub(r"{queue}", "0", re.sub(r"{topic}", "orders", path))
        posted = path.endswith(("/recalls", "/snapshot", "{topic}/messages"))
        method = "POST" if posted else "GET"
        status, document = await site.ask(method, filled)
        assert status == 401, path
        assert document["error"].startswith("AclException: ")
    head = await site.head("GET", "/status", (HOST,))
    assert b'WWW-Authenticate: Basic realm="dledger"' in head
    assert (await site.ask("GET", "/none"))[0] == 404


@pytest.mark.parametrize("header", [basic, bearer])
async def test_an_account_does_what_it_may(
    site: Site, header: Callable[[Credentials], str]
) -> None:
    writer, admin = (HOST, header(WRITER)), (HOST, header(ADMIN))
    assert (await site.ask("POST", PRODUCE, b'{"body": "a"}', writer))[0] == 200
    assert (await site.ask("POST", "/topics/bills/messages", b"{}", writer))[0] == 403
    assert (await site.ask("GET", CONSUME, headers=writer))[0] == 403
    assert (await site.ask("GET", CONSUME, headers=admin))[0] == 200
    assert (await site.ask("GET", "/status", headers=writer))[0] == 200
    assert (await site.ask("POST", "/snapshot", b"{}", writer))[0] == 403


@pytest.mark.parametrize(
    "header",
    [
        basic(Credentials("writer-123", "writer-secreT")),
        basic(Credentials("nobody-123", "writer-secret")),
        bearer(Credentials("writer-123", "other-secret")),
        bearer(WRITER, NOW_MS),
        "Authorization: Basic ????",
        "Authorization: Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Authorization: Basic",
        "Authorization: Bearer a.b.c",
        "Authorization: Digest x",
        f"{basic(WRITER)}\r\n{basic(WRITER)}",
    ],
)
async def test_wrong_keys_and_tokens_are_refused_and_not_repeated(site: Site, header: str) -> None:
    status, document = await site.ask("GET", "/status", headers=(HOST, header))
    assert status == 401
    assert "secre" not in document["error"].replace("secret key of", "")


async def test_permissive_answers_everybody_and_counts(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with guarded_site(loop, tmp_path, PERMISSIVE) as site:
        assert (await site.ask("POST", PRODUCE, b'{"body": "a"}'))[0] == 200
        _, status = await site.ask("GET", "/status")
        assert (status["security"]["access_control"], status["access_refused"]) == (PERMISSIVE, 2)
