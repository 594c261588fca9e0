"""``GET /topics/T/queues/Q/messages?offset=0&count=32&wait_ms=0``: messages as JSON."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from broker.delivery.fetch import MESSAGES_USUAL, Delivery, Fetched, FetchRequest, fetch_limits
from broker.delivery.inflated_bodies import inflated
from broker.delivery.message_json import message_json
from broker.http.access import ACCOUNT
from broker.http.errors import bad_request, json_response
from broker.http.memory_budget import HELD
from broker.limits import CONSUME
from broker.quotas.throttle import Caller
from dledger.settle import settle
from store.text_numbers import whole_number


class ConsumeHandler:
    """Reads messages of a queue."""

    def __init__(self, delivery: Delivery, loop: asyncio.AbstractEventLoop) -> None:
        self._delivery = delivery
        self._loop = loop

    async def get(self, request: web.Request) -> web.Response:
        """See the module. ``next_offset`` is the offset for the next request."""
        count = number(request, "count", MESSAGES_USUAL, CONSUME.pull_messages_max, minimum=1)
        wanted = FetchRequest(
            request.match_info["topic"],
            _integer("the queue", request.match_info["queue"]),
            number(request, "offset", 0),
            fetch_limits(count),
            hold_seconds=number(request, "wait_ms", 0, int(CONSUME.long_poll_seconds_max * 1000))
            / 1000,
            caller=Caller(request.get(ACCOUNT, "")),
            admit=request[HELD].hold,
        )
        found, parts, *_ = await self._fetched(wanted)
        messages, size, rest_at = inflated(parts)
        request[HELD].hold(size)
        return json_response(
            {
                "status": found.status.value,
                "next_offset": found.next_offset if rest_at is None else rest_at,
                "min_offset": found.min_offset,
                "max_offset": found.max_offset,
                "messages": [message_json(*each) for each in messages],
            }
        )

    async def _fetched(self, wanted: FetchRequest) -> Fetched:
        answer: asyncio.Future[Fetched] = self._loop.create_future()
        fetch = self._delivery.fetch(wanted, partial(settle, answer))
        try:
            return await answer
        finally:
            self._delivery.cancel(fetch)


def number(
    request: web.Request, name: str, usual: int, maximum: int = 2**63 - 1, minimum: int = 0
) -> int:
    """A parameter of the request. Raises :class:`~broker.http.errors.HttpRefusedError`."""
    value = _integer(name, request.query.get(name, str(usual)))
    if not minimum <= value <= maximum:
        raise bad_request(f"{name} is not between {minimum} and {maximum}: {value}")
    return value


def _integer(name: str, text: str) -> int:
    try:
        return whole_number(text)
    except ValueError:
        raise bad_request(f"{name} is not an integer: {text!r}") from None
