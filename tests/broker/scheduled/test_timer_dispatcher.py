"""Timed messages: each arrives at its time, once, in order of time, up to three days ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.group_commit.pending_batch import StoredEarlier
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.scheduled import slot_rows
from broker.scheduled.in_flight_timers import InFlightTimers
from broker.scheduled.timer_dispatcher import TimerDispatcher
from broker.scheduled.timer_wheel import DELAY_MS_MAX, SLOT_MS, SLOTS, queue_of, slot_of
from dledger.errors import NotLeaderError, ProposeError
from store.message.record import MessageRecord
from store.message.scheduled_topics import TIMER_TOPIC
from tests.broker.single_broker import SingleBroker, messages
from tests.support.virtual_network import NetworkedLoop

LATE_MS = 5
SEED = 20261121


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


@pytest.fixture
async def broker(broker: SingleBroker) -> SingleBroker:
    await broker.create_topic("orders", 1)
    return broker


class Nobody:
    """Waits for a message without being interested."""

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None: ...

    def failed(self, error: ProposeError) -> None: ...


async def received(broker: SingleBroker) -> list[MessageRecord]:
    found: list[MessageRecord] = []
    while records := messages(await broker.pull("orders", 0, len(found))):
        found += records
    return found


async def wait(broker: SingleBroker, count: int) -> list[MessageRecord]:
    async with asyncio.timeout(120):
        while len(found := await received(broker)) < count:
            await broker.pull("orders", 0, len(found), sysFlag="6", suspendTimeoutMillis="30000")
    return found


async def send_at(broker: SingleBroker, deliver_ms: int, body: bytes = b"m") -> Frame:
    answer = await broker.send("orders", 0, body, f"TIMER_DELIVER_MS\x01{deliver_ms}\x02")
    assert answer.code == 0, answer.remark
    return answer


@pytest.mark.parametrize(
    "properties",
    [
        lambda now_ms: f"TIMER_DELIVER_MS\x01{now_ms + 3000}\x02",
        lambda _: "TIMER_DELAY_MS\x013000\x02",
        lambda _: "TIMER_DELAY_SEC\x013\x02",
        lambda _: "TIMER_DELIVER_MS\x015\x02TIMER_DELAY_MS\x017\x02TIMER_DELAY_SEC\x013\x02",
    ],
)
async def test_a_message_arrives_at_its_time(
    broker: SingleBroker, properties: Callable[[int], str]
) -> None:
    sent_ms = broker.wall_ms()
    given = "TAGS\x01a\x02" + properties(sent_ms)
    answer = await broker.send("orders", 0, b"later", given, h="7", j="1")
    assert (answer.code, answer.ext["queueId"]) == (0, "0")
    (record,) = await wait(broker, 1)
    assert 0 <= record.store_timestamp - sent_ms - 3000 <= LATE_MS
    assert (record.topic, record.body, record.flag, record.reconsume_times) == (
        "orders",
        b"later",
        7,
        1,
    )
    out_ms = int(record.property_map.pop("TIMER_OUT_MS"))
    assert 0 <= out_ms - sent_ms - 3000 <= LATE_MS
    kept = dict(pair.split("\x01") for pair in given.split("\x02") if pair)
    assert record.property_map == kept | {"TIMER_OUT_MS": str(out_ms)}


@pytest.mark.parametrize(
    "properties",
    ["TIMER_DELIVER_MS\x015\x02", "TIMER_DELAY_SEC\x010\x02", "TIMER_DELAY_MS\x01-7\x02"],
)
async def test_a_time_that_is_past_is_now(broker: SingleBroker, properties: str) -> None:
    await broker.send("orders", 0, b"now", properties)
    assert len(await received(broker)) == 1
    assert broker.broker.context.machine.state.timer.waiting == 0


async def test_a_retry_that_comes_after_its_time_is_stored_once(broker: SingleBroker) -> None:
    properties = f"UNIQ_KEY\x01k\x02TIMER_DELIVER_MS\x01{broker.wall_ms() + 500}\x02"
    first = await broker.send("orders", 0, b"m", properties)
    await asyncio.sleep(3)
    again = await broker.send("orders", 0, b"m", properties)
    assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)
    await asyncio.sleep(1)
    assert [record.body for record in await received(broker)] == [b"m"]


async def test_another_message_with_the_key_of_one_that_has_waited_comes_at_once(
    broker: SingleBroker,
) -> None:
    properties = f"UNIQ_KEY\x01k\x02TIMER_DELIVER_MS\x01{broker.wall_ms() + 500}\x02"
    for body in (b"first", b"other"):
        await broker.send("orders", 0, body, properties)
        await asyncio.sleep(1)
    assert [record.body for record in await received(broker)] == [b"first", b"other"]


async def test_what_was_delivered_at_its_time_does_not_wait_when_it_is_sent_on(
    broker: SingleBroker,
) -> None:
    await broker.send("orders", 0, b"m", "TIMER_DELAY_SEC\x012\x02")
    (record,) = await wait(broker, 1)
    await broker.send("orders", 0, b"again", record.properties.decode())
    assert len(await received(broker)) == 2


async def test_a_delay_level_goes_before_a_time(broker: SingleBroker) -> None:
    sent_ms = broker.wall_ms()
    await broker.send("orders", 0, b"m", "TIMER_DELAY_SEC\x019\x02DELAY\x011\x02")
    (record,) = await wait(broker, 1)
    assert 0 <= record.store_timestamp - sent_ms - 1000 <= LATE_MS
    assert "TIMER_DELAY_SEC" not in record.property_map


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        (f"TIMER_DELAY_MS\x01{DELAY_MS_MAX + 1}\x02", "more than the max delay of 259200000 ms"),
        ("TIMER_DELAY_SEC\x01259201\x02", "more than the max delay"),
        ("TIMER_DELIVER_MS\x019999999999999\x02", "more than the max delay"),
        ("TIMER_DELAY_SEC\x011_0\x02", "TIMER_DELAY_SEC 1_0 is not a number"),
        ("TIMER_DELIVER_MS\x01tomorrow\x02", "TIMER_DELIVER_MS tomorrow is not a number"),
        ("TIMER_DELAY_SEC\x019\x02TIMER_DEL_UNIQKEY\x01k\x02", "does not support the recall"),
    ],
)
async def test_a_time_that_cannot_be_is_refused(
    broker: SingleBroker, properties: str, remark: str
) -> None:
    answer = await broker.send("orders", 0, b"m", properties)
    assert (answer.code, remark in (answer.remark or "")) == (
        ResponseCode.MESSAGE_ILLEGAL,
        True,
    ), answer.remark
    assert await received(broker) == []


@pytest.mark.parametrize("rows_max", [slot_rows.ROWS_MAX, 5], ids=["", "few in memory"])
async def test_messages_arrive_in_order_of_time_however_they_are_sent(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    monkeypatch.setattr(slot_rows, "ROWS_MAX", rows_max)
    rng = Random(SEED)
    broker.now_ms += SLOT_MS - broker.wall_ms() % SLOT_MS - 10_000  # so a slot ends meanwhile
    ahead = [rng.choice((1, 20)) * rng.randrange(1000) for _ in range(200)]
    due_of: dict[int, int] = {}
    for number, ahead_ms in enumerate(ahead):
        due_of[number] = broker.wall_ms() + ahead_ms
        await send_at(broker, due_of[number], b"%d" % number)
        if number % 50 == 0:
            await asyncio.sleep(0.3)
    found = await wait(broker, len(ahead))
    assert sorted(int(record.body) for record in found) == list(range(len(ahead)))
    late = [record.store_timestamp - due_of[int(record.body)] for record in found]
    assert (min(late) >= 0, max(late) <= LATE_MS) == (True, True), f"seed {SEED}"
    assert broker.broker.context.machine.state.timer.waiting == 0


def test_three_days_are_waited_for_across_restarts_and_nothing_arrives_twice(
    tmp_path: Path,
) -> None:
    loop = NetworkedLoop()
    hours = (1, 30, 50, 72)

    async def life(passed_ms: int, scenario: Any) -> None:
        broker = SingleBroker(loop, tmp_path, clock_runs=True)
        broker.now_ms += passed_ms
        await broker.start()
        await scenario(broker)
        await broker.stop()

    async def send(broker: SingleBroker) -> None:
        await broker.create_topic("orders", 1)
        now_ms = broker.wall_ms()
        for each in hours:
            await send_at(broker, now_ms + each * 3_600_000 - 1000, b"%d" % each)
        await send_at(broker, now_ms + 500, b"0")
        await wait(broker, 1)

    async def half(broker: SingleBroker) -> None:
        assert [record.body for record in await wait(broker, 3)] == [b"0", b"1", b"30"]
        await send_at(broker, broker.wall_ms() + 2000, b"31")
        await wait(broker, 4)

    async def idle(broker: SingleBroker) -> None:
        await asyncio.sleep(5)
        assert len(await received(broker)) == 4

    async def end(broker: SingleBroker) -> None:
        found = [record.body for record in await wait(broker, 6)]
        assert found == [b"0", b"1", b"30", b"31", b"50", b"72"]
        assert broker.broker.context.machine.state.timer.waiting == 0

    try:
        loop.run_until_complete(life(0, send))
        loop.run_until_complete(life(31 * 3_600_000, half))
        loop.run_until_complete(life(31 * 3_600_000 + 60_000, idle))
        loop.run_until_complete(life(100 * 3_600_000, end))
    finally:
        loop.close()


async def test_a_slot_that_comes_round_again_waits_for_its_own_time(broker: SingleBroker) -> None:
    first = broker.wall_ms() + 2000
    await send_at(broker, first, b"first")
    await wait(broker, 1)
    # Three days later there are messages in the same queue again, of the slot behind it.
    broker.now_ms += SLOTS * SLOT_MS - DELAY_MS_MAX + 1000
    second = first + SLOTS * SLOT_MS
    assert queue_of(slot_of(second)) == queue_of(slot_of(first))
    await send_at(broker, second, b"second")
    await asyncio.sleep(30)
    assert len(await received(broker)) == 1
    broker.now_ms += DELAY_MS_MAX - 60_000
    found = await wait(broker, 2)
    assert 0 <= found[1].store_timestamp - second <= LATE_MS


async def test_a_message_stored_only_after_its_time_is_not_passed_over(
    broker: SingleBroker,
) -> None:
    now_ms = broker.wall_ms()
    await send_at(broker, now_ms + 1000, b"b")
    broker.log_executor.hold()
    late = asyncio.ensure_future(send_at(broker, now_ms + 900, b"a"))
    await asyncio.sleep(3)
    assert await received(broker) == []
    broker.log_executor.release()
    await late
    found = await wait(broker, 2)
    assert [record.body for record in found] == [b"a", b"b"]


async def test_a_clock_that_jumps_while_a_message_is_pending_makes_nobody_look_all_the_time(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    find = TimerDispatcher._find

    def counted(dispatcher: TimerDispatcher) -> None:
        nonlocal looks
        looks += 1
        find(dispatcher)

    monkeypatch.setattr(TimerDispatcher, "_find", counted)
    day_ms = 86_400_000
    await send_at(broker, broker.wall_ms() + 2 * day_ms, b"b")
    broker.log_executor.hold()
    pending = asyncio.ensure_future(send_at(broker, broker.wall_ms() + 900, b"a"))
    await asyncio.sleep(0.1)
    broker.now_ms += day_ms
    await asyncio.sleep(3)
    assert looks < 10
    broker.log_executor.release()
    await pending
    assert [record.body for record in await wait(broker, 1)] == [b"a"]


async def test_timed_messages_wait_in_a_topic_of_the_broker_s_own(broker: SingleBroker) -> None:
    answer = await broker.pull(TIMER_TOPIC, 0, 0)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    answer = await broker.send(TIMER_TOPIC, 0, b"m")
    assert answer.code == ResponseCode.NO_PERMISSION


def test_what_is_in_flight_is_known_by_its_earliest_time() -> None:
    in_flight = InFlightTimers()
    landed: list[int | None] = []
    in_flight.on_settled = lambda: landed.append(in_flight.first_ms())
    waiters = [in_flight.tracked(time, Nobody()) for time in (30, 10, 20, 10)]
    assert (bool(in_flight), in_flight.first_ms()) == (True, 10)
    waiters[1].stored(0, [0])
    waiters[2].failed(NotLeaderError(None))
    waiters[3].stored(0, [0], StoredEarlier(b"", 0))
    waiters[0].stored(0, [0])
    assert landed == [10, 10, 30, None]
    assert not in_flight
