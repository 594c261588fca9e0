"""The HTTP port, spoken to in plain HTTP/1.1 over a connection in memory."""

from __future__ import annotations

import asyncio
import base64
import zlib
from pathlib import Path

import pytest

from broker.delivery.fetch import NO_GROUP
from broker.http.forwarding import FORWARDED
from broker.limits import CONSUME, FORWARDING
from broker.remoting.protocol.codes import RequestCode
from store.quoting import TEXT_MAX
from tests.broker.http.site import HOST, Site, running_site
from tests.broker.metrics.test_topic_metrics import view
from tests.broker.single_broker import NOW_MS, messages
from tests.support.virtual_network import NetworkedLoop


async def test_a_posted_message_is_stored_and_read_back(site: Site) -> None:
    document = {"body": "hällo", "tags": "a", "keys": ["k1", "k2"], "queue_id": 1}
    status, stored = await site.post("orders", document | {"properties": {"x": "y"}})
    assert status == 200, stored
    assert (stored["queue_id"], stored["queue_offset"], stored["broker"]) == (1, 0, "broker-a")
    status, pulled = await site.ask("GET", "/topics/orders/queues/1/messages")
    assert status == 200
    (message,) = pulled.pop("messages")
    assert pulled == {"status": "FOUND", "next_offset": 1, "min_offset": 0, "max_offset": 1}
    assert message == {
        "topic": "orders",
        "queue_id": 1,
        "queue_offset": 0,
        "msg_id": stored["msg_id"],
        "unique_key": "",
        "tags": "a",
        "keys": ["k1", "k2"],
        "properties": {"x": "y", "TAGS": "a", "KEYS": "k1 k2"},
        "born_timestamp": NOW_MS,
        "store_timestamp": NOW_MS,
        "reconsume_times": 0,
        "body": "hällo",
    }


async def test_bytes_that_are_no_text_travel_as_base64(site: Site) -> None:
    encoded = base64.b64encode(b"\xff\x00").decode()
    await site.post("orders", {"body_base64": encoded, "queue_id": 0})
    (record,) = messages(await site.broker.pull("orders", 0, 0))
    assert record.body == b"\xff\x00"
    _, pulled = await site.ask("GET", "/topics/orders/queues/0/messages")
    assert pulled["messages"][0]["body_base64"] == encoded


async def test_a_body_that_cannot_be_decompressed_is_given_as_it_is_stored(site: Site) -> None:
    await site.broker.create_topic("orders")
    for body, compression in ((b"\xff no zlib", "1"), (zlib.compress(b"inside"), "1")):
        await site.broker.send("orders", 0, body, f=compression)
    status, pulled = await site.ask("GET", "/topics/orders/queues/0/messages")
    assert status == 200
    stored, inflated = pulled["messages"]
    assert stored["body_base64"] == base64.b64encode(b"\xff no zlib").decode()
    assert inflated["body"] == "inside"


async def test_an_answer_ends_before_the_message_with_which_it_inflates_to_too_much(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = CONSUME._replace(pull_bytes_max=1500)
    monkeypatch.setattr("broker.delivery.inflated_bodies.CONSUME", few)
    await site.broker.create_topic("orders", queues=1)
    bodies = ["a" * 600, "b" * 600, "c" * 5000, "d" * 600]
    for body in bodies:
        await site.broker.send("orders", 0, zlib.compress(body.encode()), f="1")
    offset, answers = 0, []
    while offset < 4:
        _, pulled = await site.ask("GET", f"/topics/orders/queues/0/messages?offset={offset}")
        offset = pulled["next_offset"]
        answers.append([each["body"] for each in pulled["messages"]])
    assert answers == [bodies[:2], bodies[2:3], bodies[3:]]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ([], "the request is not a JSON object"),
        ({}, "a message has either body or body_base64"),
        ({"body": "a", "body_base64": "YQ=="}, "a message has either body or body_base64"),
        ({"body": 1}, "body is not a string: 1"),
        ({"body_base64": "?"}, "body_base64 is not base64"),
        ({"body": "a", "tag": "x"}, "tag is not a field of a message"),
        ({"body": "a", "tags": 1}, "tags is not a string: 1"),
        ({"body": "a", "keys": "k"}, "keys is not a list"),
        ({"body": "a", "properties": []}, "properties is not a JSON object"),
        ({"body": "a", "properties": {"a": "\x02"}}, "contains a separator"),
        ({"body": "a", "queue_id": "0"}, "queue_id is not an integer: '0'"),
        ({"body": "a", "queue_id": 0.5}, "queue_id is not an integer: 0.5"),
        ({"body": "a", "queue_id": -1}, "queue_id is below 0: -1; leave it out for any queue"),
        ({"body": "a", "keys": ["a b"]}, "a key is one word without white space: 'a b'"),
        ({"body": "a", "keys": ["a", ""]}, "a key is one word without white space: ''"),
        ({"body": "a", "properties": {"": "x"}}, "a property has no name"),
    ],
)
async def test_a_bad_message_is_refused_with_what_is_wrong(
    site: Site, document: object, error: str
) -> None:
    status, answer = await site.post("orders", document)
    assert (status, error in answer["error"]) == (400, True), answer


@pytest.mark.parametrize("queue_id", [9, 9.0])
async def test_a_message_to_a_queue_that_the_topic_does_not_have_is_refused(
    site: Site, queue_id: float
) -> None:
    status, answer = await site.post("orders", {"body": "a", "queue_id": queue_id})
    assert (status, "has no queue 9" in answer["error"]) == (404, True), answer


@pytest.mark.parametrize(
    "document",
    [{"x" * 100_000: 1}, {"body": ["x"] * 10_000}, {"body": "a", "keys": ["a b" * 10_000]}],
)
async def test_a_refusal_does_not_repeat_all_that_was_sent(site: Site, document: object) -> None:
    status, answer = await site.post("orders", document)
    assert (status, len(answer["error"]) <= TEXT_MAX + 100) == (400, True)


async def test_a_body_that_is_no_json_is_refused(site: Site) -> None:
    status, answer = await site.ask("POST", "/topics/orders/messages", b"hello")
    assert (status, "the request is not JSON" in answer["error"]) == (400, True)


@pytest.mark.parametrize("queue_id", [9, 9.0])
async def test_a_message_for_a_queue_that_is_not_there_is_refused_as_a_read_is(
    site: Site, queue_id: float
) -> None:
    status, answer = await site.post("orders", {"body": "a", "queue_id": queue_id})
    assert (status, answer["error"]) == (
        404,
        "the topic orders has no queue 9, its queues are 0 to 3",
    )


async def test_a_message_for_a_group_that_is_not_there_is_refused(site: Site) -> None:
    status, answer = await site.post("%25RETRY%25nobody", {"body": "a"})
    assert (status, answer["error"]) == (404, "subscription group not exist, nobody")


@pytest.mark.parametrize("size", [64 << 10, (64 << 10) + 1, 1 << 20])
async def test_a_body_has_the_limit_of_every_message(site: Site, size: int) -> None:
    status, _ = await site.post("orders", {"body": "x" * size})
    assert status == (200 if size == site.broker.config.max_message_size else 413)


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/topics/none/queues/0/messages", 404, "topic[none] not exist"),
        ("/topics/orders/queues/4/messages", 404, "has no queue 4"),
        ("/topics/orders/queues/x/messages", 400, "the queue is not an integer: 'x'"),
        ("/topics/orders/queues/1_0/messages", 400, "the queue is not an integer: '1_0'"),
        ("/topics/orders/queues/0/messages?offset=%D9%A3", 400, "offset is not an integer: '٣'"),
        ("/topics/orders/queues/0/messages?count=1_0", 400, "count is not an integer: '1_0'"),
        ("/topics/orders/queues/0/messages?offset=-1", 400, "offset is not between 0"),
        ("/topics/orders/queues/0/messages?count=1025", 400, "count is not between 1 and 1024"),
        ("/topics/orders/queues/0/messages?count=0", 400, "count is not between 1 and 1024"),
        ("/topics/hidden/queues/0/messages", 403, "the topic hidden is not readable"),
        ("/nowhere", 404, "Not Found"),
    ],
)
async def test_what_cannot_be_read_says_why(site: Site, path: str, status: int, error: str) -> None:
    await site.broker.create_topic("orders")
    await site.broker.create_topic("hidden", perm=2)
    found, answer = await site.ask("GET", path)
    assert (found, error in answer["error"]) == (status, True), answer


async def test_a_reader_may_wait_for_a_message(site: Site) -> None:
    await site.broker.create_topic("orders")
    waiting = site.ask("GET", "/topics/orders/queues/0/messages?wait_ms=5000")
    await asyncio.sleep(1)
    assert not waiting.done()
    await site.broker.send("orders", 0, b"there")
    _, pulled = await waiting
    assert [message["body"] for message in pulled["messages"]] == ["there"]
    started_at = site.broker.loop.time()
    _, pulled = await site.ask("GET", "/topics/orders/queues/0/messages?offset=1&wait_ms=2000")
    assert pulled["messages"] == []
    assert site.broker.loop.time() - started_at == pytest.approx(2, abs=0.1)


async def test_a_reader_that_goes_away_waits_no_more(site: Site) -> None:
    """As many as there may be of them would keep other clients from waiting."""

    await site.broker.create_topic("orders")
    path = "/topics/orders/queues/0/messages?wait_ms=60000"
    begun = [site.begin("GET", path, 0)[0] for _ in range(5)]
    await asyncio.sleep(1)
    assert len(site.broker.broker.context.delivery.long_polling) == 5
    for connection in begun:
        connection.abort()
    await asyncio.sleep(1)
    assert len(site.broker.broker.context.delivery.long_polling) == 0
    await site.broker.send("orders", 0, b"there")


async def test_a_node_that_is_told_to_stop_is_alive_and_not_ready(site: Site) -> None:
    site.server.leave()
    status, answer = await site.ask("GET", "/readyz")
    assert (status, answer["role"]) == (503, "leader")
    assert "stops" in answer["status"]
    assert (await site.ask("GET", "/livez"))[0] == 200
    assert (await site.post("orders", {"body": "a"}))[0] == 200


async def test_health_and_status_say_that_the_leader_serves(site: Site) -> None:
    assert await site.ask("GET", "/healthz") == (
        200,
        {"status": "ok", "node": "broker-a/n0", "role": "leader"},
    )
    _, status = await site.ask("GET", "/status")
    assert (status["leader"], status["serving"], status["term"]) == ("n0", True, 1)
    assert status["applied_index"] == status["last_index"] == 0
    _, topics = await site.ask("GET", "/topics")
    assert {topic["name"] for topic in topics["topics"] if topic["system"]} == {
        "BenchmarkTest",
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "TBW102",
        "broker-a",
    }
    assert not [topic for topic in topics["topics"] if not topic["system"]]


async def test_without_a_leader_a_node_is_not_healthy_and_takes_nothing(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_site(loop, tmp_path, serving=False, election_timeout_ms=60_000) as site:
        status, answer = await site.ask("GET", "/healthz")
        assert (status, answer["status"]) == (503, "no leader is known")
        refusal = {
            "error": "not the leader; the leader is not known yet",
            "outcome": "not_leader",
        }
        began = loop.time()
        assert await site.post("orders", {"body": "a"}) == (503, refusal)
        assert loop.time() - began >= FORWARDING.wait_seconds
        began = loop.time()
        headers = (HOST, f"{FORWARDED}: 1")
        answer = await site.ask("POST", "/topics/orders/messages", b'{"body": "a"}', headers)
        assert answer == (503, refusal)
        assert loop.time() - began < FORWARDING.wait_seconds


async def test_groups_are_shown_with_what_they_have_not_acknowledged(site: Site) -> None:
    for number in range(5):
        await site.post("orders", {"body": str(number), "queue_id": number % 2})
    await site.broker.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "1"},
    )
    _, found = await site.ask("GET", "/groups")
    assert found["groups"] == [
        {"group": "g", "topic": "orders", "members": 0, "acknowledged": 1, "lag": 4, "lag_ms": 0}
    ]
    _, found = await site.ask("GET", "/topics")
    (orders,) = [topic for topic in found["topics"] if topic["name"] == "orders"]
    assert orders["messages"] == 5


async def test_what_goes_in_and_out_is_counted_as_for_other_clients(site: Site) -> None:
    """By the same code: each message once, however often it is sent, each pull by its topic."""

    broker, path = site.broker, "/topics/orders/queues/0/messages"
    stats = broker.broker.context.stats
    document = {"body": "a", "queue_id": 0, "properties": {"UNIQ_KEY": "k" * 32}}
    answers = [await site.post("orders", document) for _ in range(3)]
    assert [status for status, _ in answers] == [200] * 3
    assert len({answer["queue_offset"] for _, answer in answers}) == 1
    assert stats.put_messages == 1
    await broker.send("orders", 0, b"bb")
    assert stats.put_messages == 2
    await site.ask("GET", path)
    await site.ask("GET", f"{path}?offset=1")
    await broker.pull("orders", 0, 0)
    assert (stats.get_messages, stats.pulls_found, stats.pulls_missed) == (5, 3, 0)
    _, nothing = await site.ask("GET", f"{path}?offset=2")
    assert nothing["messages"] == []
    await broker.pull("orders", 0, 2)
    assert (stats.get_messages, stats.pulls_found, stats.pulls_missed) == (5, 3, 2)
    put = await view(broker, "TOPIC_PUT_NUMS", "orders")
    got = await view(broker, "GROUP_GET_NUMS", f"orders@{NO_GROUP}")
    whole = await view(broker, "BROKER_GET_NUMS", broker.config.cluster)
    sums = [figure["statsMinute"]["sum"] for figure in (put, got, whole)]
    assert sums == [2, 3, 5]
    size = await view(broker, "GROUP_GET_SIZE", f"orders@{NO_GROUP}")
    records = messages(await broker.pull("orders", 0, 0))
    assert size["statsMinute"]["sum"] == records[0].size + 2 * records[1].size
