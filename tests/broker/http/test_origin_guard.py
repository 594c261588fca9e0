"""The HTTP port answers nobody who speaks for a page of another site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.http.site import HOST, Site, running_site
from tests.support.virtual_network import NetworkedLoop

JSON = "Content-Type: application/json"
OWN = "Origin: http://127.0.0.1:8080"


@pytest.mark.parametrize(
    "headers",
    [
        ["Host: 127.0.0.1:8080"],
        ["Host: 127.0.0.1"],
        ["Host: 127.1.2.3:9"],
        ["Host: localhost:8080"],
        ["Host: LOCALHOST.:8080"],
        ["Host: [::1]:8080"],
        ["Host: console.example.com"],
        ["Host: Console.Example.com:443"],
        [HOST, OWN],
        [HOST, "Sec-Fetch-Site: same-origin"],
        [HOST, "Sec-Fetch-Site: none"],
        ["Host: localhost", "Origin: http://localhost:80"],
        ["Host: console.example.com", "Origin: https://console.example.com:443"],
        # Somebody follows a link to the console.
        [
            HOST,
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Mode: navigate",
            "Sec-Fetch-Dest: document",
        ],
    ],
)
async def test_who_names_this_node_is_answered(
    loop: NetworkedLoop, tmp_path: Path, headers: list[str]
) -> None:
    async with running_site(loop, tmp_path, http_hosts=("console.example.com",)) as site:
        assert (await site.ask("GET", "/status", headers=headers))[0] == 200


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        # Another name that was made to lead here.
        (403, ["Host: evil.example"]),
        (403, ["Host: evil.example:8080", "Origin: http://evil.example:8080"]),
        (403, ["Host: 127.0.0.1.evil.example"]),
        (403, ["Host: localhost.evil.example"]),
        (403, ["Host: 192.0.2.1:8080"]),
        (403, ["Host: 2130706433"]),
        (400, ["Host: 127.0.0.1:x"]),
        (400, ["Host: evil.example@127.0.0.1"]),
        (400, ["Host: 127.0.0.1/evil.example"]),
        (400, ["Host: "]),
        # A page of another site, or of another port of this machine.
        (403, [HOST, "Origin: http://evil.example"]),
        (403, [HOST, "Origin: http://127.0.0.1:3000"]),
        (403, [HOST, "Origin: http://localhost:8080"]),
        (403, [HOST, "Origin: null"]),
        (403, [HOST, "Origin: "]),
        (403, [HOST, "Origin: file://"]),
        (403, [HOST, "Origin: 127.0.0.1:8080"]),
        (403, [HOST, "Origin: http://evil.example@127.0.0.1:8080"]),
        (400, [HOST, OWN, "Origin: http://evil.example"]),
        (403, [HOST, "Sec-Fetch-Site: cross-site"]),
        (403, [HOST, "Sec-Fetch-Site: same-site"]),
        (403, [HOST, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]),
        (403, [HOST, OWN, "Sec-Fetch-Site: cross-site"]),
    ],
)
async def test_who_speaks_for_another_site_is_refused(
    loop: NetworkedLoop, tmp_path: Path, status: int, headers: list[str]
) -> None:
    requests = [
        ("GET", "/topics", b""),
        ("OPTIONS", "/topics/orders/messages", b""),
        ("POST", "/topics/orders/messages", b'{"body": "a"}'),
        ("POST", "/snapshot", b"{}"),
        ("GET", "/nowhere", b""),
    ]

    async with running_site(loop, tmp_path) as site:
        for method, path, body in requests:
            found, answer = await site.ask(method, path, body, [*headers, JSON])
            assert (found, list(answer)) == (status, ["error"])
        assert site.broker.broker.context.batcher.topic("orders") is None
    assert not (tmp_path / "snapshots").exists()


async def test_a_navigation_from_elsewhere_sends_nothing(site: Site) -> None:
    """A form of another site is a navigation, too."""

    headers = [HOST, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]
    headers.append("Sec-Fetch-Dest: document")
    found, _ = await site.ask("POST", "/topics/orders/messages", b'{"body": "a"}', headers)
    assert found == 403


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, [HOST]),  # a program that says nothing of the body
        (200, [HOST, "Content-Type: application/x-www-form-urlencoded"]),  # curl -d
        (200, [HOST, JSON, OWN]),
        (200, [HOST, "Content-Type: Application/JSON; charset=utf-8", OWN]),
        (415, [HOST, OWN]),
        (415, [HOST, "Content-Type: text/plain", OWN]),
        (415, [HOST, "Content-Type: text/plain; application/json", OWN]),
        (415, [HOST, "Content-Type: application/x-www-form-urlencoded", OWN]),
    ],
)
async def test_a_page_must_say_that_it_sends_json(
    site: Site, status: int, headers: list[str]
) -> None:
    found, answer = await site.ask("POST", "/topics/orders/messages", b'{"body": "a"}', headers)
    assert found == status, answer


@pytest.mark.parametrize("headers", [[], [HOST, "Host: evil.example"]])
async def test_a_request_names_this_node_once(site: Site, headers: list[str]) -> None:
    assert (await site.head("GET", "/status", headers)).startswith(b"HTTP/1.0 400 ")


@pytest.mark.parametrize(
    ("status", "target"),
    [
        (200, "http://127.0.0.1:8080/status"),
        (200, "http://localhost/status"),
        (403, "http://evil.example/status"),
        (404, "//evil.example/status"),
    ],
)
async def test_a_target_may_name_this_node_too(site: Site, status: int, target: str) -> None:
    assert (await site.ask("GET", target))[0] == status
    assert (await site.head("OPTIONS", "*", [HOST])).startswith(b"HTTP/1.")


async def test_answers_are_for_this_node_s_pages_alone(site: Site) -> None:
    for path in ("/", "/status", "/nowhere"):
        head = await site.head("GET", path, [HOST])
        assert b"Cross-Origin-Resource-Policy: same-origin" in head
        assert b"X-Content-Type-Options: nosniff" in head
        assert b"X-Frame-Options: DENY" in head
        assert b"Access-Control-Allow-Origin" not in head


async def test_a_refusal_of_a_name_says_where_names_are_set(site: Site) -> None:
    _, answer = await site.ask("GET", "/status", headers=["Host: broker.example"])
    assert "'broker.example'" in answer["error"]
    assert "http_hosts in its settings" in answer["error"]
