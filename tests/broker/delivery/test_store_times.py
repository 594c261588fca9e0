"""Store times of many messages are looked up over many turns of the event loop."""

from __future__ import annotations

import asyncio
from typing import cast

from broker.delivery.message_lookup import MessageLookup, NumberDone
from broker.delivery.store_times import PLACES_PER_TURN, Place, store_times


class Lookup:
    """Knows the time of each place at once; counts the look-ups."""

    asked = 0

    def store_time(self, _topic: str, _queue_id: int, offset: int, done: NumberDone) -> None:
        self.asked += 1
        done(offset, None)


async def test_one_turn_looks_up_so_many_and_the_answer_has_all() -> None:
    lookup, found = Lookup(), dict[Place, int]()
    places = [("T", 0, offset) for offset in range(10 * PLACES_PER_TURN + 7)]
    store_times(
        asyncio.get_running_loop(), cast("MessageLookup", lookup), places + places, found.update
    )
    turns = 0
    while not found:
        assert lookup.asked == (turns + 1) * PLACES_PER_TURN
        await asyncio.sleep(0)
        turns += 1
    assert turns == 10
    assert found == {place: place[2] for place in places}


async def test_no_place_is_answered_at_once() -> None:
    answers: list[dict[Place, int]] = []
    loop = asyncio.get_running_loop()
    store_times(loop, cast("MessageLookup", Lookup()), [], answers.append)
    assert answers == [{}]
