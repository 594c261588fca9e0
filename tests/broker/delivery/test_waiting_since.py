"""How long the message waits that a group consumes next."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import orjson
import pytest

from broker.admin.consumer_groups import ConsumerGroups, waiting_places
from broker.delivery.message_lookup import MessageLookup, NumberDone
from broker.delivery.store_times import Place
from broker.delivery.waiting_since import WaitingSince
from broker.http.json_documents import groups_document
from broker.limits import AdminLimits
from broker.remoting.protocol.codes import RequestCode
from store.errors import DamagedError
from tests.broker.admin.test_consumer_groups import commit
from tests.broker.single_broker import SingleBroker

MINUTE = 60.0


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


async def stocked(broker: SingleBroker) -> None:
    """Two queues with a message each minute, and a group that has consumed the first one."""
    await broker.create_topic("orders", queues=2)
    for number in range(4):
        await broker.send("orders", number % 2, b"x")
        await asyncio.sleep(MINUTE)
    await commit(broker, "readers", "orders", 0, 1)


def places_of(broker: SingleBroker) -> list[Place]:
    context = broker.broker.context
    progress = ConsumerGroups(context.machine, context.clients).progress("readers", "orders")
    assert progress is not None
    return waiting_places(progress.queues())


class Counted(MessageLookup):
    """Counts the looks; those in ``stuck`` are never answered, and those in ``damaged`` fail."""

    def __init__(self, broker: SingleBroker) -> None:
        context = broker.broker.context
        super().__init__(context.machine, context.reader)
        self.looks: list[tuple[int, int]] = []
        self.stuck: set[int] = set()
        self.damaged: set[int] = set()

    def store_time(self, topic: str, queue_id: int, offset: int, done: NumberDone) -> None:
        self.looks.append((queue_id, offset))
        if queue_id in self.damaged:
            done(0, DamagedError("log", 0, "a CRC"))
        elif queue_id not in self.stuck:
            super().store_time(topic, queue_id, offset, done)


def waiting(broker: SingleBroker, lookup: MessageLookup, **limits: int) -> WaitingSince:
    wall_clock = broker.broker.context.wall_clock
    return WaitingSince(broker.loop, lookup, wall_clock, AdminLimits(**limits))


async def test_the_oldest_message_that_is_not_consumed_counts(broker: SingleBroker) -> None:
    await stocked(broker)
    since = broker.broker.context.waiting_since
    places = places_of(broker)
    assert since.lag_ms(places) is None  # nobody has looked
    await since.look(places)
    minutes = [round((since.lag_ms([place]) or 0) / 1000 / MINUTE) for place in places]
    assert minutes == [2, 3]
    assert since.lag_ms(places) == since.lag_ms(places[1:])
    for queue_id in (0, 1):
        await commit(broker, "readers", "orders", queue_id, 2)
    assert since.lag_ms(places_of(broker)) == 0


async def test_each_place_is_looked_at_once(broker: SingleBroker) -> None:
    await stocked(broker)
    lookup = Counted(broker)
    since = waiting(broker, lookup)
    for _ in range(3):
        await since.look(places_of(broker))
    assert lookup.looks == [(0, 1), (1, 0)]
    await commit(broker, "readers", "orders", 1, 1)
    await since.look(places_of(broker))
    assert lookup.looks[2:] == [(1, 1)]


async def test_what_cannot_be_read_is_unknown_and_keeps_nobody_waiting(
    broker: SingleBroker,
) -> None:
    await stocked(broker)
    lookup = Counted(broker)
    lookup.stuck = {1}
    since = waiting(broker, lookup)
    began = broker.loop.time()
    await since.look(places_of(broker)[1:])
    assert broker.loop.time() - began == pytest.approx(AdminLimits().lag_look_seconds, abs=0.1)
    assert since.lag_ms(places_of(broker)[1:]) is None
    lookup.stuck, lookup.damaged = set(), {1}
    await since.look(places_of(broker))
    first, second = places_of(broker)
    assert since.lag_ms([second]) is None
    assert since.lag_ms([first, second]) == since.lag_ms([first])


async def test_many_queues_take_bounded_memory(broker: SingleBroker) -> None:
    await stocked(broker)
    since = waiting(broker, Counted(broker), lag_times_max=1)
    await since.look(places_of(broker))
    first, second = places_of(broker)
    assert (since.lag_ms([first]) is None, since.lag_ms([second]) is None) == (False, True)
    await since.look([second])
    assert since.lag_ms([second]) is not None
    await commit(broker, "readers", "orders", 1, 1)
    await since.look(places_of(broker)[1:])
    assert since.lag_ms([first]) is None  # it made room


async def test_http_and_tools_tell_it(broker: SingleBroker) -> None:
    await stocked(broker)
    context = broker.broker.context
    (row,) = (await groups_document(context))["groups"]
    assert round(row["lag_ms"] / 1000 / MINUTE) == 3
    answer = await broker.ask(RequestCode.GET_CONSUMER_GROUPS, {"group": "readers"})
    ((topic,),) = [group["topics"] for group in orjson.loads(answer.body)["groups"]]
    assert [round(ms / 1000 / MINUTE) for ms in topic["lag_ms"]] == [2, 3]
    assert [queue["queue_id"] for queue in topic["queues"]] == [0, 1]
    with patch("broker.http.json_documents.ADMIN", AdminLimits(lag_times_max=0)):
        (row,) = (await groups_document(context))["groups"]
    assert (row["lag"], row["lag_ms"]) == (3, None)
