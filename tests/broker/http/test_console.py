"""The door of the console: sessions, and what the pages ask of the other nodes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from broker.command_error import CommandError
from broker.console import site as site_module
from broker.console.visits import jobs
from broker.console.visits.visit import Page, Visit
from broker.http.console import SESSION_SECONDS
from broker.limits import CONSOLE
from broker.remoting.protocol.codes import RequestCode
from broker.security.authorize import Caller
from broker.security.tokens import make_token
from tests.broker.http.site import HOST, Site, running_site
from tests.broker.http.test_access import ADMIN, WRITER, bearer, guarded_site
from tests.broker.single_broker import NOW_MS
from tests.support.virtual_network import NetworkedLoop


@pytest.fixture
async def guarded(loop: NetworkedLoop, tmp_path: Path) -> AsyncIterator[Site]:
    """One with access control."""
    async with guarded_site(loop, tmp_path) as site:
        yield site


async def answer(
    site: Site, method: str, path: str, body: bytes, *headers: str
) -> tuple[int, bytes]:
    """Status, and all that was answered."""
    connection, curl = site.begin(method, path, len(body), (HOST, *headers))
    connection.write(body)
    head, content = await curl.parts()
    return int(head.split()[1]), head + b"\r\n\r\n" + content


async def test_a_name_in_a_path_is_decoded_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of retry topics and of dead letters have per cent signs."""
    asked = []

    async def page(_visit: Visit, name: str) -> Page:
        asked.append(name)
        raise CommandError("seen")

    monkeypatch.setattr(site_module, "DETAILS", {"topics": page})
    for path in ("%25RETRY%25ad-service", "%25DLQ%25A%2541"):
        assert (await answer(site, "GET", f"/console/topics/{path}", b""))[0] == 200
    assert asked == ["%RETRY%ad-service", "%DLQ%A%41"]


async def test_the_root_leads_to_the_console(site: Site) -> None:
    status, told = await answer(site, "GET", "/", b"")
    assert status == 303
    assert b"Location: /console/\r\n" in told


async def test_a_page_has_no_inline_script_and_says_so_to_the_browser(site: Site) -> None:
    status, told = await answer(site, "GET", "/console/", b"")
    assert status == 200
    assert b"script-src 'self';" in told
    assert b"unsafe" not in told.partition(b"\r\n\r\n")[0]
    assert not re.search(rb"<script(?![^>]*src=)|<style| style=| on[a-z]+=", told)
    status, told = await answer(site, "GET", "/console/static/console.js", b"")
    assert status == 200
    assert b"text/javascript" in told


async def test_a_page_names_the_content_of_the_files_that_it_loads(site: Site) -> None:
    """A browser that has kept the files of an earlier version loads the new ones."""
    _, page = await answer(site, "GET", "/console/", b"")
    loaded = re.findall(rb'(?:src|href)="(/console/static/[^"]+)"', page)
    assert len(loaded) > 5
    for url in map(bytes.decode, loaded):
        path, _, version = url.partition("?v=")
        status, told = await answer(site, "GET", url, b"")
        content = told.partition(b"\r\n\r\n")[2]
        assert (status, hashlib.sha256(content).hexdigest()[:12]) == (200, version), path


@pytest.mark.parametrize(
    "path",
    [
        *("static/../site.py", "static/%2e%2e/site.py", "static//etc/passwd", "static/", "nothing"),
        *("jobs/", "jobs/1", "jobs/x", f"jobs/{'9' * 5000}"),
    ],
)
async def test_there_is_nothing_else_below_it(site: Site, path: str) -> None:
    assert (await answer(site, "GET", f"/console/{path}", b""))[0] == 404


async def test_a_change_too_many_says_so_in_its_dialog(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "CONSOLE", CONSOLE._replace(changes_max=0))
    change = orjson.dumps({"step": "run", "topic": "T"})
    status, told = await answer(site, "POST", "/console/action/topic-create", change)
    assert status == 200
    assert b"0 changes are in progress; try again later" in told


def cookie_of(told: bytes) -> bytes:
    found = re.search(rb"Set-Cookie: (dledger-[^;]+);([^\r]*)", told)
    assert found is not None
    assert {each.strip() for each in found[2].split(b";")} >= {
        *(b"HttpOnly", b"SameSite=Strict", b"Path=/console"),
        f"Max-Age={SESSION_SECONDS}".encode(),
    }
    return found[1]


async def test_a_session_is_a_token_in_a_cookie_that_counts_for_the_console_alone(
    guarded: Site,
) -> None:
    status, told = await answer(guarded, "GET", "/console/", b"")
    assert status == 401
    assert b"Access key" in told
    assert b"WWW-Authenticate" not in told, "the browser is not to ask"
    keys = {"access_key": WRITER.access_key, "secret_key": WRITER.secret_key}
    status, told = await answer(guarded, "POST", "/console/login", orjson.dumps(keys))
    assert status == 200
    cookie = f"Cookie: {cookie_of(told).decode()}"
    assert WRITER.secret_key.encode() not in told
    assert (await answer(guarded, "GET", "/console/", b"", cookie))[0] == 200
    assert (await answer(guarded, "GET", "/status", b"", cookie))[0] == 401
    wrong = orjson.dumps(keys | {"secret_key": "wrong-secret"})
    status, told = await answer(guarded, "POST", "/console/login", wrong)
    assert (status, b"Set-Cookie" in told) == (401, False)
    status, told = await answer(guarded, "POST", "/console/logout", b"", cookie)
    assert b'="";' in told or b"Max-Age=0" in told


async def test_a_session_ends(guarded: Site) -> None:
    old = make_token(WRITER.access_key, WRITER.secret_key, NOW_MS - 1)
    cookie = f"Cookie: dledger-DefaultCluster={old}"
    status, told = await answer(guarded, "GET", "/console/", b"", cookie)
    assert status == 401
    assert b"the token has expired" in told


async def test_a_header_counts_too(guarded: Site) -> None:
    assert (await answer(guarded, "GET", "/console/", b"", bearer(ADMIN)))[0] == 200


async def test_a_change_from_another_sites_page_is_refused(guarded: Site) -> None:
    token = make_token(ADMIN.access_key, ADMIN.secret_key, NOW_MS + 10_000)
    cookie = f"Cookie: dledger-DefaultCluster={token}"
    body = orjson.dumps({"topic": "orders", "step": "run"})
    path = "/console/action/topic-delete"
    for header in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-guarded"):
        assert (await answer(guarded, "POST", path, body, cookie, header))[0] == 403


async def test_it_asks_others_with_the_keys_of_who_asked_and_with_no_others(guarded: Site) -> None:
    access = guarded.broker.broker.context.access
    assert access is not None
    for keys in (ADMIN, WRITER):
        caller = access.with_password(keys.access_key, keys.secret_key, "10.0.0.1")
        assert access.credentials(caller) == keys
    assert access.credentials(Caller("white", trusted=True)) is None


@pytest.mark.parametrize("listed", [False, True])
async def test_only_who_has_an_address_of_the_white_list_gets_the_rights_of_the_nodes_address(
    guarded: Site, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    if listed:
        change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        made = await guarded.broker.ask(change, {"globalWhiteAddrs": "10.0.0.*"})
        assert made.code == 0
    asked = []

    async def page(visit: Visit, _name: str) -> Page:
        asked.append(visit.security)
        raise CommandError("seen")

    monkeypatch.setattr(site_module, "DETAILS", {"topics": page})
    assert (await answer(guarded, "GET", "/console/topics/T", b"", bearer(WRITER)))[0] == 200
    (security,) = asked
    assert security.on_behalf is not listed
    assert security.credentials == (None if listed else WRITER)


async def test_reports_of_audits_are_told(loop: NetworkedLoop, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    async with running_site(loop, tmp_path / "data", audit_dir=str(reports)) as site:
        assert await site.ask("GET", "/audit") == (200, {"directory": str(reports), "reports": []})
        reports.mkdir()
        document = {"consistent": True, "replicas": [{"replica": "broker-a/n0"}], "findings": []}
        (reports / "verify.json").write_bytes(orjson.dumps(document))
        _, told = await site.ask("GET", "/audit")
        assert told["reports"][0]["replicas"] == ["broker-a/n0"]
        (reports / "verify.json").unlink()
        reports.rmdir()
        reports.write_text("no directory")
        assert (await site.ask("GET", "/audit"))[0] == 503


async def test_without_a_directory_there_are_no_reports(site: Site) -> None:
    assert await site.ask("GET", "/audit") == (200, {"directory": "", "reports": []})


async def test_what_waits_and_what_was_are_told(site: Site) -> None:
    await site.broker.create_topic("orders", 1)
    answer = await site.broker.send("orders", 0, b"later", "DELAY\x0118\x02")
    assert answer.code == 0
    status, told = await site.ask("GET", "/waiting")
    assert status == 200
    assert told["scheduled"] == told["delayed"]
    assert [(each["level"], each["messages"]) for each in told["scheduled"]["levels"]] == [(18, 1)]
    assert told["transactions"] == {"count": 0, "listed": []}
    assert told["popped"] == {"count": 0, "listed": []}
    status, told = await site.ask("GET", "/history?since=1")
    assert (status, told["samples"], told["fields"][0]) == (200, [], "time_ms")
    assert (await site.ask("GET", "/history?since=x"))[0] == 400
