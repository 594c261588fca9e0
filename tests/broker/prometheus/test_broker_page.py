"""``/metrics`` of a node: what was done is what it tells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import exposition

from broker.limits import METRICS
from broker.prometheus import catalog, text_page
from broker.prometheus import message_readings as readings
from broker.prometheus.metric import Kind
from broker.prometheus.text_page import CONTENT_TYPE, PAGE_SECONDS
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.http.site import Site, running_site
from tests.broker.prometheus.pages import Page
from tests.support.virtual_network import NetworkedLoop

PATH = "/metrics"


async def page(site: Site) -> Page:
    connection, curl = site.begin("GET", PATH, 0)
    connection.write(b"")
    head, body = await curl.parts()
    assert b" 200 OK" in head.splitlines()[0]
    assert f"Content-Type: {CONTENT_TYPE}".encode() in head
    return Page.parse(body.decode())


def test_the_content_type_is_that_of_the_client_library() -> None:
    assert CONTENT_TYPE == exposition.CONTENT_TYPE_PLAIN_0_0_4


async def test_what_came_in_and_went_out_is_told_by_topic_and_group(site: Site) -> None:
    broker = site.broker
    await broker.create_topic("orders")
    for number in range(5):
        answer = await broker.send("orders", number % 2, b"x" * 100)
        assert answer.code == ResponseCode.SUCCESS
    await broker.pull("orders", 0, 0, consumerGroup="readers")
    await broker.pull("orders", 0, 0, consumerGroup="readers")
    told = await page(site)
    assert told.value("rocketmq_messages_in_total", topic="orders") == 5
    assert told.value("rocketmq_throughput_in_total", topic="orders") > 500
    labels = {"topic": "orders", "consumer_group": "readers", "is_retry": "false"}
    assert told.value("rocketmq_messages_out_total", **labels) == 6
    assert told.value("dledger_pulls_total", result="found") == 2
    assert told["dledger_pull_seconds_count"] == 2
    assert told["rocketmq_topic_number"] == len(broker.broker.context.machine.state.topics)


async def test_a_group_lags_by_what_it_has_not_acknowledged_in_each_queue(site: Site) -> None:
    broker = site.broker
    await broker.create_topic("orders")
    for number in range(6):
        await broker.send("orders", number % 2, b"x")
    await broker.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "orders", "queueId": "1", "commitOffset": "2"},
    )
    broker.now_ms += 5000
    told = await page(site)
    assert told.value("rocketmq_consumer_lag_messages", consumer_group="g") == 4
    assert told.value("rocketmq_consumer_lag_latency", consumer_group="g") == 5000
    lags = told.values("dledger_consumer_lag_queue_messages", consumer_group="g")
    assert {dict(labels)["queue"]: lag for labels, lag in lags.items() if lag} == {
        "0": 3,
        "1": 1,
    }


async def test_a_leader_tells_every_metric_of_the_catalog(site: Site) -> None:
    told = await page(site)
    expected = {metric.name: metric.kind.value for metric in catalog.ON_BROKER}
    own = {name: kind for name, kind in told.kinds.items() if not name.startswith("process_")}
    assert own == expected
    assert {name for name in told.kinds if name not in own} == set(catalog.PROCESS)
    by_name = {metric.name: metric for metric in catalog.METRICS}
    for name, labels in told.samples:
        base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        metric = by_name.get(name) or by_name.get(base)
        if metric is None:
            assert name in catalog.PROCESS
            continue
        own_labels = {label for label, _ in labels} - {"le"}
        assert own_labels == {*catalog.NODE_LABELS, *metric.labels}, name
        assert ("le" in dict(labels)) == name.endswith("_bucket")
        assert name == metric.name or metric.kind is Kind.HISTOGRAM


async def test_latencies_and_raft_agree_with_the_log(site: Site) -> None:
    broker = site.broker
    await broker.create_topic("orders")
    before = await page(site)
    for _ in range(3):
        await broker.send("orders", 0, b"x")
    await asyncio.sleep(PAGE_SECONDS)
    told = await page(site)
    entries = told["dledger_raft_last_index"] - before["dledger_raft_last_index"]
    assert entries == 3
    for name in ("dledger_commit_seconds_count", "dledger_apply_seconds_count"):
        assert told[name] - before[name] == entries
    assert told["dledger_raft_applied_index"] == told["dledger_raft_commit_index"]
    assert told.value("dledger_raft_role", role="leader") == 1
    assert told.sum("dledger_raft_role") == 1
    assert (told["dledger_raft_serving"], told["dledger_raft_has_leader"]) == (1, 1)
    assert (told["dledger_raft_voters"], told["dledger_raft_may_lose_nodes"]) == (1, 0)
    assert told["dledger_raft_elections_total"] == told["dledger_raft_term"] == 1


async def test_refusals_are_counted_by_port_and_reason(site: Site) -> None:
    assert (await site.broker.pull("nowhere", 0, 0)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await site.ask("GET", "/topics/nowhere/queues/0/messages"))[0] == 404
    assert (await site.ask("GET", "/nowhere"))[0] == 404
    told = await page(site)
    refused = told.values("dledger_refused_requests_total", port="http")
    by_reason = {dict(labels)["reason"]: count for labels, count in refused.items()}
    assert by_reason == {"unknown_topic": 1, "http_404": 1}
    assert told.value("dledger_refused_requests_total", port="remoting") == 1
    assert told.value("dledger_connections", port="remoting") == 1


async def test_a_node_that_does_not_lead_tells_nothing_of_lags(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_site(loop, tmp_path, serving=False) as site:
        told = await page(site)
        assert told["dledger_raft_serving"] == 0
        assert "rocketmq_consumer_lag_messages" not in told.kinds
        assert told.sum("rocketmq_messages_in_total") == 0


async def test_names_beyond_the_limit_are_one_series_that_loses_nothing(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = METRICS.__class__(
        topics_max=1, topic_groups_max=2, lag_queues_max=3, connected_groups_max=1
    )
    monkeypatch.setattr(readings, "METRICS", few)

    async with running_site(loop, tmp_path) as site:
        broker = site.broker
        await broker.create_topic("orders")
        for number in range(4):
            await broker.send("orders", 0, b"x")
            await broker.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {
                    "consumerGroup": f"g{number}",
                    "topic": "orders",
                    "queueId": "0",
                    "commitOffset": "0",
                },
            )
        told = await page(site)
        lags = told.values("rocketmq_consumer_lag_messages")
        assert len(lags) == 3
        assert told.sum("rocketmq_consumer_lag_messages") == 16
        assert told.value("rocketmq_consumer_lag_messages", topic="(other)") == 8
        assert told.sum("dledger_consumer_lag_queue_messages") == 16
        assert told.value("dledger_consumer_lag_queue_messages", topic="(other)") == 12


async def test_dead_letters_are_told_however_many_topics_there_are(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is an alert for them; a sum over all topics would not tell of any."""
    few = METRICS._replace(topics_max=1)
    monkeypatch.setattr("broker.metrics.topic_metrics.METRICS", few)

    async with running_site(loop, tmp_path) as site:
        broker = site.broker
        for topic in ("orders", "bills", "%DLQ%readers", "%DLQ%others"):
            await broker.create_topic(topic)
            assert (await broker.send(topic, 0, b"x")).code == ResponseCode.SUCCESS
        told = await page(site)
        dead = told.values("rocketmq_send_to_dlq_messages_total")
        by_group = {dict(labels)["consumer_group"]: count for labels, count in dead.items()}
        assert by_group == {"readers": 1, "(other)": 1}
        assert told.value("rocketmq_messages_in_total", topic="(other)") == 3


async def test_a_metric_of_many_samples_is_written_in_turns_and_stands_there_once(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_page, "SAMPLES_PER_TURN", 3)

    async with running_site(loop, tmp_path) as site:
        for number in range(10):
            await site.broker.create_topic(f"t{number}")
            await site.broker.send(f"t{number}", 0, b"x")
        told = await page(site)  # which refuses what stands there twice
        assert told.sum("rocketmq_messages_in_total") == 10
        assert len(told.values("rocketmq_messages_in_total")) == 10
        assert told.value("dledger_raft_role", role="leader") == 1
        assert told["dledger_commit_seconds_count"] > 10


async def test_whoever_asks_again_at_once_gets_the_same_page(site: Site) -> None:
    await site.broker.create_topic("orders")
    before = await page(site)
    await site.broker.send("orders", 0, b"x")
    assert await page(site) == before
    await asyncio.sleep(PAGE_SECONDS)
    assert (await page(site)).value("rocketmq_messages_in_total", topic="orders") == 1


async def test_a_node_is_alive_whether_it_is_ready_or_not(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_site(loop, tmp_path, serving=False) as site:
        assert (await site.ask("GET", "/livez"))[0] == 200
        status, answer = await site.ask("GET", "/readyz")
        assert (status, answer["status"]) == (503, "no leader is known")
        assert await site.ask("GET", "/healthz") == (status, answer)
