"""The lag of groups in time: how long the next message of a group has waited.

A look-up reads a row of a queue and a part of a record, once for each place, because store times do
not change. A group that does not move costs nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from broker.delivery.message_lookup import MessageLookup
from broker.delivery.store_times import PLACES_PER_TURN, Place, store_times
from broker.limits import ADMIN, AdminLimits


class WaitingSince:
    """A cache of the store times of the messages that groups consume next."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lookup: MessageLookup,
        wall_clock: Callable[[], int],
        limits: AdminLimits = ADMIN,
    ) -> None:
        self._loop = loop
        self._lookup = lookup
        self._wall_clock = wall_clock
        self._limits = limits
        self._known: dict[Place, int] = {}

    async def look(self, places: Iterable[Place]) -> None:
        """Looks up the times of these places, for :meth:`lag_ms`.

        Takes at most ``lag_look_seconds``. A time that is not found by then stays unknown, for
        example that of a record under repair.
        """
        wanted = dict.fromkeys(places)
        missing = [place for place in wanted if place not in self._known]
        del missing[self._limits.lag_times_max :]
        if len(self._known) + len(missing) > 2 * self._limits.lag_times_max:
            self._known = {place: ms for place, ms in self._known.items() if place in wanted}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.lag_look_seconds):
                for begin in range(0, len(missing), PLACES_PER_TURN):
                    found = await self._times(missing[begin : begin + PLACES_PER_TURN])
                    self._known.update((place, ms) for place, ms in found.items() if ms)
                    await asyncio.sleep(0)

    def lag_ms(self, places: Sequence[Place]) -> int | None:
        """How long the oldest message of these places has waited, in ms; 0 without places, None if
        no time is known."""
        if not places:
            return 0
        times = [ms for place in places if (ms := self._known.get(place))]
        return max(0, self._wall_clock() - min(times)) if times else None

    async def _times(self, places: list[Place]) -> dict[Place, int]:
        answer: asyncio.Future[dict[Place, int]] = self._loop.create_future()

        def found(times: dict[Place, int]) -> None:
            if not answer.done():
                answer.set_result(times)

        store_times(self._loop, self._lookup, places, found)
        return await answer
