"""Figures by topic and group: what is counted, over which time, and how tools are told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.metrics.topic_metrics import (
    DAY,
    HOUR,
    MINUTE,
    SAMPLE_SECONDS,
    Meter,
    Meters,
    TopicMetrics,
)
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.single_broker import (
    SingleBroker,
    batched,
    messages,
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now


def run_for(meters: TopicMetrics, clock: Clock, seconds: int) -> None:
    """Time passes, and what was counted is put away as often as it is."""
    for _ in range(seconds // SAMPLE_SECONDS):
        clock.now += SAMPLE_SECONDS
        meters.sample()


def test_windows_hold_what_came_in_their_time() -> None:
    clock = Clock()
    meters = TopicMetrics(clock.time)
    for _ in range(6 * 60 * 3):
        meters.got.of(("orders", "readers")).add(5, 100)
        run_for(meters, clock, SAMPLE_SECONDS)
    meter = meters.got["orders", "readers"]

    minute = meter.sums(MINUTE, meters.passed())
    assert (minute.messages, minute.bytes, minute.steps, minute.seconds) == (25, 500, 5, 50.0)
    hour = meter.sums(HOUR, meters.passed())
    assert (hour.messages, hour.seconds) == (5 * 5 * 60, 5 * 600.0)
    day = meter.sums(DAY, meters.passed())
    assert (day.messages, day.seconds) == (5 * 6 * 60 * 3, 3 * 3600.0)


def test_what_was_not_put_away_yet_counts_already() -> None:
    clock = Clock()
    meters = TopicMetrics(clock.time)
    clock.now += 4
    meters.got.of(("orders", "readers")).add(8, 10)
    assert meters.rate("orders", "readers") == 2.0
    assert meters.rate("orders", "others") == 0.0


def test_totals_never_shrink_and_keys_beyond_the_limit_are_one_series() -> None:
    clock = Clock()
    meters: Meters[str] = Meters(clock.time, series_max=2, meters_max=4)

    def counted(*keys: str) -> None:
        for key in keys:
            meters.of(key).add(1, 10)

    def told() -> tuple[dict[str, int], int]:
        by_key, others = meters.series()
        assert others.bytes == 10 * others.messages
        return {key: totals.messages for key, totals in by_key.items()}, others.messages

    counted("a", "b", "c", "d", "e", "e", "a")
    assert told() == ({"a": 2, "b": 1}, 4)
    assert len(meters) == 4
    later = 0
    while len(meters) > 1:  # of which "a" alone goes on
        clock.now += SAMPLE_SECONDS
        meters.sample(clock.now, clock.now)
        counted("a")
        later += 1
    assert later * SAMPLE_SECONDS > 24 * 3600
    assert told() == ({"a": 2 + later}, 4)
    counted("c", "f", "g")
    assert told() == ({"a": 2 + later, "c": 1}, 6)


def test_a_topic_that_rests_has_nothing_in_the_last_minute_and_is_forgotten_after_a_day() -> None:
    clock = Clock()
    meters = TopicMetrics(clock.time)
    meters.returned("orders", "readers", 70)
    run_for(meters, clock, 120)
    meter = meters.sent_back["orders", "readers"]
    assert meter.sums(MINUTE, meters.passed()).messages == 0
    assert meter.sums(HOUR, meters.passed()).messages == 1
    run_for(meters, clock, 26 * 3600)
    assert meters.sent_back == {}


def test_a_meter_keeps_no_more_than_its_windows_need() -> None:
    meter = Meter(0.0)
    for second in range(0, 3 * 86_400, SAMPLE_SECONDS):
        meter.add(1, 1)
        meter.sample(float(second), float(second))
    assert [len(buckets) for buckets in meter.spans] == [4 * 6, 4 * 6, 4 * 24]


async def view(broker: SingleBroker, name: str, key: str) -> dict[str, dict[str, Any]]:
    answer = await broker.ask(
        RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    document: dict[str, dict[str, Any]] = orjson.loads(answer.body)
    return document


async def test_tools_are_told_what_went_in_and_out(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    batch = batched(b"a") + batched(b"bb") + batched(b"ccc")
    ext = send_ext("orders", 0) | {"m": "true"}
    assert (await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, batch)).code == 0
    await broker.send("orders", 1, b"dddd")
    records = messages(await broker.pull("orders", 0, 0))
    size = sum(record.size for record in records)
    ext = {"offset": str(records[0].position), "group": "readers", "delayLevel": "0"}
    assert (await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0

    put = await view(broker, "TOPIC_PUT_NUMS", "orders")
    assert {each["sum"] for each in put.values()} == {4}
    assert put["statsMinute"]["avgpt"] == 2.0
    assert put["statsMinute"]["tps"] > 0
    got = await view(broker, "GROUP_GET_SIZE", "orders@readers")
    assert (got["statsDay"]["sum"], got["statsDay"]["avgpt"]) == (size, size)
    assert (await view(broker, "TOPIC_PUT_SIZE", "orders"))["statsHour"]["sum"] > size
    back = await view(broker, "SNDBCK_PUT_NUMS", "orders@readers")
    assert back["statsMinute"]["sum"] == 1
    whole = await view(broker, "BROKER_GET_NUMS", broker.config.cluster)
    assert whole["statsMinute"]["sum"] == 3
    progress = await broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers"})
    assert progress.code == ResponseCode.SUCCESS


async def test_a_pull_whose_filter_wants_nothing_brought_nothing(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"x")
    answer = await broker.pull("orders", 0, 0, subscription="color = 'red'", expressionType="SQL92")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    stats = broker.broker.context.stats
    assert (stats.get_messages, stats.pulls_found, stats.pulls_missed) == (0, 0, 1)
    assert broker.broker.context.rates.topic_metrics.got == {}


async def test_the_rate_of_a_group_is_told_with_its_progress(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    for _ in range(10):
        await broker.send("orders", 0, b"x")
    await broker.pull("orders", 0, 0)
    ext = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"}
    await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS):
        answer = await broker.ask(code, {"consumerGroup": "readers"})
        assert b'"consumeTps":' in answer.body
        assert b'"consumeTps":0.0' not in answer.body


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "none"),
        ("GROUP_GET_NUMS", "orders"),
        ("BROKER_PUT_NUMS", "elsewhere"),
        ("SOMETHING", "orders"),
    ],
)
async def test_what_is_not_counted_is_refused_with_what_was_asked_for(
    broker: SingleBroker, name: str, key: str
) -> None:
    await broker.create_topic("orders")
    ext = {"statsName": name, "statsKey": key}
    answer = await broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"The stats <{name}>" in (answer.remark or "")


async def test_what_a_restart_applies_again_is_not_counted_again(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"x")
    async with running_broker(loop, tmp_path) as broker:
        assert messages(await broker.pull("orders", 0, 0))
        assert broker.broker.context.rates.topic_metrics.put == {}
        await asyncio.sleep(SAMPLE_SECONDS)
        await broker.send("orders", 0, b"y")
        assert (await view(broker, "TOPIC_PUT_NUMS", "orders"))["statsMinute"]["sum"] == 1
