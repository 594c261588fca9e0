"""What waits is listed up to a limit, and counted beyond."""

from __future__ import annotations

import asyncio
from dataclasses import replace
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
    monkeypatch.setattr(waiting_messages, "ADMIN", replace(ADMIN, waiting_listed_max=limit))
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
