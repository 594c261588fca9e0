"""Of what waits, it is found out what belongs to one topic."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from broker.admin import waiting_of_topic
from broker.admin.turns import ITEMS_PER_TURN
from broker.limits import ADMIN
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.message.batch import QUEUE_ROW
from tests.broker.single_broker import SingleBroker
from tests.broker.transactions.transaction_client import COMMIT, end, half

HOUR = "DELAY\x0117\x02"
SOON = "DELAY\x011\x02"


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


async def told(broker: SingleBroker, topic: str) -> tuple[int, int]:
    answer = await broker.ask(RequestCode.GET_WAITING_OF_TOPIC, {"topic": topic})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = orjson.loads(answer.body)
    return found["messages"], found["unread"]


async def test_each_kind_of_waiting_message_is_known_by_its_topic(broker: SingleBroker) -> None:
    for topic in ("orders", "bills", "rest"):
        await broker.create_topic(topic, 3)
    await broker.send("orders", 0, b"seen")
    sent = await half(broker)
    await broker.send("orders", 0, b"a level", HOUR)
    await broker.send("bills", 0, b"a level", HOUR)
    await broker.send("orders", 0, b"a time", "TIMER_DELAY_SEC\x013600\x02")
    await broker.send("bills", 0, b"a time", "TIMER_DELAY_SEC\x013601\x02")
    assert await told(broker, "orders") == (3, 0)
    assert await told(broker, "bills") == (2, 0)
    assert await told(broker, "rest") == (0, 0)
    await end(broker, sent, COMMIT)
    assert await told(broker, "orders") == (2, 0)


async def test_what_was_recalled_waits_no_more(broker: SingleBroker) -> None:
    await broker.create_topic("orders", 1)
    for key in ("kept", "gone"):
        properties = f"UNIQ_KEY\x01{key}\x02TIMER_DELAY_SEC\x0130\x02"
        sent = await broker.send("orders", 0, key.encode(), properties)
    assert await told(broker, "orders") == (2, 0)
    ext = {"topic": "orders", "recallHandle": sent.ext["recallHandle"]}
    assert (await broker.ask(RequestCode.RECALL_MESSAGE, ext)).code == ResponseCode.SUCCESS
    assert await told(broker, "orders") == (1, 0)


async def test_what_was_delivered_waits_no_more(broker: SingleBroker) -> None:
    """Also where others wait behind it in the same queue."""
    await broker.create_topic("orders", 1)
    await broker.send("orders", 0, b"soon", "TIMER_DELAY_SEC\x013\x02")
    await broker.send("orders", 0, b"a level", SOON)
    await broker.send("orders", 0, b"later", "TIMER_DELAY_SEC\x0130\x02")
    assert await told(broker, "orders") == (3, 0)
    await asyncio.sleep(8)
    assert await told(broker, "orders") == (1, 0)


@pytest.mark.parametrize(
    ("limit", "known"),
    [
        ({"waiting_read_max": 2}, (2, 3)),
        ({"waiting_read_max": 5}, (5, 0)),
        ({"waiting_read_bytes_max": 1}, (0, 5)),
    ],
)
async def test_beyond_a_limit_it_tells_how_many_it_has_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
    broker: SingleBroker,
    limit: dict[str, int],
    known: tuple[int, int],
) -> None:
    monkeypatch.setattr(waiting_of_topic, "ADMIN", ADMIN._replace(**limit))
    await broker.create_topic("orders", 1)
    for _ in range(5):
        await broker.send("orders", 0, b"x", HOUR)
    assert await told(broker, "orders") == known


class _Delivered:
    """A queue of the wheel of which all is delivered."""

    first_offset, end_offset = 0, 50 * ITEMS_PER_TURN

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.in_turn = [0]

    def read(self, offset: int, count: int) -> bytes:
        if not self.in_turn[-1]:
            self._loop.call_soon(self.in_turn.append, 0)
        count = min(count, self.end_offset - offset)
        self.in_turn[-1] += count
        return QUEUE_ROW.pack(0, 100, 1) * count


async def test_much_that_was_delivered_is_passed_over_in_turns(
    monkeypatch: pytest.MonkeyPatch, broker: SingleBroker
) -> None:
    await broker.create_topic("orders", 1)
    queue = _Delivered(asyncio.get_running_loop())
    monkeypatch.setattr(waiting_of_topic, "undelivered_of_wheel", lambda _: [(0, queue, 0, (2, 0))])
    assert await told(broker, "orders") == (0, 0)
    assert sum(queue.in_turn) == queue.end_offset
    assert max(queue.in_turn) <= 2 * ITEMS_PER_TURN


async def test_one_looks_at_a_time(broker: SingleBroker) -> None:
    await broker.create_topic("orders", 1)
    await broker.send("orders", 0, b"x", HOUR)
    ask = {"topic": "orders"}
    codes = await asyncio.gather(
        *(broker.ask(RequestCode.GET_WAITING_OF_TOPIC, ask) for _ in range(3))
    )
    assert sorted(answer.code for answer in codes) == [0, 2, 2]
    assert await told(broker, "orders") == (1, 0)
