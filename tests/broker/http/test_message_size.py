"""The largest body is the same on each wire, however JSON writes it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from broker.remoting.protocol.codes import ResponseCode
from tests.broker.http.site import HOST, Curl, Site
from tests.broker.prometheus.test_broker_page import page
from tests.broker.single_broker import SingleBroker, messages

PATH = "/topics/orders/messages"
LARGEST = 64 << 10
"""Bytes of a body."""

LARGE_PROPERTIES = {"x": "\x03" * 32_000}


def as_it_is(body: str) -> bytes:
    document = {"body": body, "queue_id": 0, "properties": LARGE_PROPERTIES}
    return json.dumps(document, ensure_ascii=False).encode()


def escaped(body: str) -> bytes:
    return json.dumps({"body": body, "queue_id": 0, "properties": LARGE_PROPERTIES}).encode()


def all_escaped(body: str) -> bytes:
    """Also what needs no escape."""
    text = json.dumps(body).encode()
    return escaped("").replace(b'""', b'"' + text[1:-1].replace(b"a", b"\\u0061") + b'"', 1)


def in_base64(body: str) -> bytes:
    encoded = base64.b64encode(body.encode()).decode()
    return json.dumps({"body_base64": encoded, "queue_id": 0}).encode()


async def refusals(site: Site) -> dict[str, float]:
    """Of the HTTP port, by reason."""
    refused = (await page(site)).values("dledger_refused_requests_total", port="http")
    return {dict(labels)["reason"]: count for labels, count in refused.items()}


async def over_remoting(broker: SingleBroker, body: str) -> int:
    return (await broker.send("orders", 1, body.encode())).code


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        (as_it_is, "a"),
        (as_it_is, "é"),
        (as_it_is, '"'),
        (escaped, "\x01"),
        (escaped, "é"),
        (escaped, "€"),
        (escaped, "😀"),
        (escaped, "\\"),
        (all_escaped, "a"),
        (in_base64, "a"),
        (in_base64, "é"),
    ],
)
async def test_a_body_has_one_limit_however_it_is_written(
    site: Site, written: Callable[[str], bytes], unit: str
) -> None:
    await site.broker.create_topic("orders")
    width = len(unit.encode())
    sizes = (LARGEST, LARGEST + 1, 2 * LARGEST, 3 * LARGEST, 30 * LARGEST)
    for size in sizes:
        body = unit * (size // width) + "b" * (size % width)
        status, answer = await site.ask("POST", PATH, written(body))
        code = await over_remoting(site.broker, body)
        assert (status, code) in ((200, 0), (413, ResponseCode.MESSAGE_ILLEGAL)), answer
        assert (status == 200) is (size == LARGEST)
        assert site.memory.held == 0
    assert await refusals(site) == {"body_too_large": len(sizes) - 1}
    (record,) = messages(await site.broker.pull("orders", 0, 0))
    assert record.body.decode() == unit * (LARGEST // width) + "b" * (LARGEST % width)


async def test_what_is_too_large_without_being_a_body_is_counted_by_its_status(
    site: Site,
) -> None:
    status, answer = await site.ask("POST", "/snapshot", b"[" + b" " * (20 * LARGEST) + b"]")
    assert (status, answer) == (413, {"error": "the request has more than 786432 bytes"})
    assert await refusals(site) == {"http_413": 1}


async def test_a_request_of_escapes_alone_is_not_decoded_beyond_the_limit(site: Site) -> None:
    """A string of so many characters would take four bytes for each."""
    text = b'{"body": "' + b"\\u0001" * (LARGEST + 10) + b"a" * 2 * LARGEST + b'"}'
    status, answer = await site.ask("POST", PATH, text)
    error = "the request has more than 196608 bytes without escapes"
    assert (status, answer) == (413, {"error": error})


@pytest.mark.parametrize(
    ("unit", "most", "status"),
    [(b"a", LARGEST, 200), (b"\\u0061", LARGEST, 200), (b"a", 3 * LARGEST, 413)],
)
async def test_a_body_that_comes_in_chunks_has_the_same_limit(
    site: Site, unit: bytes, most: int, status: int
) -> None:
    """Nothing tells its size before."""
    curl = Curl(site.broker.loop)
    near, _ = site.broker.loop.join(curl, site.protocol(), 8080)
    head = (f"POST {PATH} HTTP/1.1", HOST, "Connection: close", "Transfer-Encoding: chunked")
    near.write("\r\n".join((*head, "", "")).encode())
    for part in (b'{"body": "', *([unit * 1024] * (most // 1024)), b'"}'):
        near.write(b"%x\r\n%b\r\n" % (len(part), part))
    near.write(b"0\r\n\r\n")
    assert (await curl.answer())[0] == status
    assert site.memory.held == 0
