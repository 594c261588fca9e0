"""A timed message is recalled over HTTP as over the other wires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.remoting.protocol.codes import RequestCode
from tests.broker.http.site import Site, running_site
from tests.broker.scheduled.test_recalls import state
from tests.support.virtual_network import NetworkedLoop


@pytest.fixture
async def site(loop: NetworkedLoop, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(loop, tmp_path, clock_runs=True) as site:
        yield site


TIMED = {"UNIQ_KEY": "k", "TIMER_DELAY_SEC": "60"}


async def sent(site: Site, **properties: str) -> dict[str, str]:
    status, stored = await site.post("orders", {"body": "m", "properties": properties})
    assert status == 200, stored
    assert isinstance(stored, dict)
    return stored


async def recall(site: Site, document: object, topic: str = "orders") -> tuple[int, object]:
    return await site.ask_with("POST", f"/topics/{topic}/recalls", document)


async def test_a_recalled_message_is_not_delivered(site: Site) -> None:
    handle = (await sent(site, **TIMED))["recall_handle"]
    for _ in range(2):  # the first answer may have got lost
        assert await recall(site, {"recall_handle": handle}) == (200, {"unique_key": "k"})
    assert state(site.broker) == (1, 0)
    await asyncio.sleep(62)
    pulls = [await site.ask("GET", f"/topics/orders/queues/{at}/messages") for at in range(4)]
    assert [pulled["messages"] for _, pulled in pulls] == [[]] * 4


async def test_what_was_delivered_is_not_there_to_be_recalled(site: Site) -> None:
    handle = (await sent(site, UNIQ_KEY="k", TIMER_DELAY_SEC="1"))["recall_handle"]
    await asyncio.sleep(2)
    error = "the message has been delivered, or its time has passed"
    assert await recall(site, {"recall_handle": handle}) == (404, {"error": error})


async def test_a_message_has_the_same_handle_over_remoting(site: Site) -> None:
    """Sent again, because that answers with the handle of the first."""
    due = {"UNIQ_KEY": "k", "TIMER_DELIVER_MS": str(site.broker.wall_ms() + 9000)}
    handle = (await sent(site, **due))["recall_handle"]
    properties = "".join(f"{name}\x01{value}\x02" for name, value in due.items())
    again = await site.broker.send("orders", 0, b"m", properties, g=str(site.broker.now_ms))
    assert again.ext["recallHandle"] == handle
    fields = {"topic": "orders", "recallHandle": handle, "producerGroup": "p"}
    assert (await site.broker.ask(RequestCode.RECALL_MESSAGE, fields)).ext == {"msgId": "k"}
    assert state(site.broker) == (1, 0)


@pytest.mark.parametrize(
    "properties",
    [{}, {"UNIQ_KEY": "k", "DELAY": "2"}, {"TIMER_DELAY_SEC": "60"}],
    ids=["plain", "level", "no key"],
)
async def test_what_cannot_be_recalled_has_no_handle(
    site: Site, properties: dict[str, str]
) -> None:
    assert "recall_handle" not in await sent(site, **properties)


@pytest.mark.parametrize(
    ("document", "topic", "status", "error"),
    [
        ([], "orders", 400, "is not a JSON object with recall_handle"),
        ({}, "orders", 400, "is not a JSON object with recall_handle"),
        ({"recall_handle": 1}, "orders", 400, "is not a JSON object with recall_handle"),
        ({"recall_handle": "x", "more": 1}, "orders", 400, "is not a JSON object with recall"),
        ({"recall_handle": "x"}, "orders", 400, "recall handle is invalid"),
        ({"recall_handle": None}, "bills", 400, "the recall handle is of the topic orders"),
        ({"recall_handle": None}, "none", 404, "the topic none does not exist"),
    ],
)
async def test_a_recall_that_names_nothing_is_refused(
    site: Site, document: object, topic: str, status: int, error: str
) -> None:
    """``None``: a handle of the topic orders."""
    await site.broker.create_topic("bills")
    handle = (await sent(site, **TIMED))["recall_handle"]
    if document == {"recall_handle": None}:
        document = {"recall_handle": handle}
    found, answer = await recall(site, document, topic)
    assert isinstance(answer, dict)
    assert (found, error in answer["error"]) == (status, True), answer
    assert state(site.broker) == (1, 1)
