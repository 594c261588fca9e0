"""What waits is listed up to a limit, and counted beyond."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from broker.admin import waiting_messages
from broker.limits import ADMIN
from broker.remoting.protocol.codes import RequestCode
from tests.broker.pop.pop_client import Member
from tests.broker.single_broker import SingleBroker
from tests.broker.transactions.transaction_client import HALF, half


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


@pytest.mark.parametrize(("limit", "listed"), [(2, 2), (3, 3), (4, 3)])
async def test_so_many_are_listed_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch, broker: SingleBroker, limit: int, listed: int
) -> None:
    monkeypatch.setattr(waiting_messages, "ADMIN", ADMIN._replace(waiting_listed_max=limit))
    await broker.create_topic("orders", 3)
    for queue in range(3):
        await broker.send("orders", queue, b"x")
        await Member(broker).receive(1, queue=queue)
        await half(broker, properties=HALF.replace("U1", f"U{queue}"))
    told = await waiting_messages.waiting_messages(broker.broker.context)
    for waiting in ("transactions", "popped"):
        assert told[waiting]["count"] == 3
        assert len(told[waiting]["listed"]) == listed


async def test_those_that_no_consumer_can_see_yet_are_counted(broker: SingleBroker) -> None:
    await broker.create_topic("orders", 3)
    await broker.send("orders", 0, b"seen")
    await half(broker)
    await broker.send("orders", 0, b"a level", "DELAY\x0118\x02")
    await broker.send("orders", 0, b"a time", "TIMER_DELAY_SEC\x01600\x02")
    answer = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert orjson.loads(answer.body)["table"]["undeliveredMessages"] == "3"
    await asyncio.sleep(700)
    # The transaction is rolled back, since its producers are gone; the level is of two hours.
    assert waiting_messages.undelivered_count(broker.broker.context) == 1


async def next_timed(broker: SingleBroker) -> int | None:
    told = await waiting_messages.waiting_messages(broker.broker.context)
    found: int | None = told["scheduled"]["timed_next_ms"]
    return found


async def test_of_those_with_a_time_of_their_own_it_is_told_when_the_next_is_due(
    broker: SingleBroker,
) -> None:
    """Whatever their order, in this slot of the wheel and in later ones; recalled ones are not."""
    await broker.create_topic("orders", 1)
    now = broker.broker.context.wall_clock()
    assert await next_timed(broker) is None

    async def send(key: str, seconds: int) -> tuple[int, dict[str, str]]:
        due_ms = now + seconds * 1000
        properties = f"UNIQ_KEY\x01{key}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
        sent = await broker.send("orders", 0, b"x", properties)
        return due_ms, {"topic": "orders", "recallHandle": str(sent.ext["recallHandle"])}

    days, _ = await send("days", 2 * 86_400)
    assert await next_timed(broker) == days
    hours, _ = await send("hours", 7_200)
    assert await next_timed(broker) == hours
    soon, _ = await send("soon", 5)
    then, _ = await send("then", 8)
    recalled, handle = await send("recalled", 3)
    assert await next_timed(broker) == recalled
    await broker.ask(RequestCode.RECALL_MESSAGE, handle)
    assert await next_timed(broker) == soon
    await asyncio.sleep(6)
    assert await next_timed(broker) == then
    await asyncio.sleep(4)
    assert await next_timed(broker) == hours


@pytest.mark.parametrize(("limit", "is_known"), [(2, False), (3, True)])
async def test_where_too_many_wait_it_is_not_told_when_the_next_is_due(
    monkeypatch: pytest.MonkeyPatch, broker: SingleBroker, limit: int, is_known: bool
) -> None:
    monkeypatch.setattr(waiting_messages, "ADMIN", ADMIN._replace(waiting_rows_max=limit))
    await broker.create_topic("orders", 1)
    for seconds in (90, 60, 80):
        await broker.send("orders", 0, b"x", f"TIMER_DELAY_SEC\x01{seconds}\x02")
    assert (await next_timed(broker) is not None) is is_known
