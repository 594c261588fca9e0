"""``GET /topics/T/queues/Q/messages?offset=0&count=32&wait_ms=0``: messages as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from aiohttp import web

from broker.context import BrokerContext
from broker.delivery.long_polling import HeldPull
from broker.delivery.message_json import messages_json
from broker.delivery.message_reader import GetMessageResult, GetMessageStatus, LogRange, PullLimits
from broker.http.errors import HttpRefusedError, json_response
from broker.http.memory_budget import HELD
from broker.limits import CONSUME
from store.errors import StoreError
from store.io.filesystem import Bytes

COUNT_USUAL = 32

NO_GROUP = "(http)"
"""Under which figures stand what is read here. No group has such a name."""


class ConsumeHandler:
    """Handles what is read from a queue; followers serve what they have applied."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def get(self, request: web.Request) -> web.Response:
        """See the module. ``next_offset`` is where to go on."""
        topic, queue_id = self._queue(request)
        offset = _number(request, "offset", 0)
        count = _number(request, "count", COUNT_USUAL, CONSUME.pull_messages_max, minimum=1)
        wait_ms = _number(request, "wait_ms", 0, int(CONSUME.long_poll_seconds_max * 1000))
        limits = PullLimits(count, CONSUME.pull_bytes_max)
        try:
            found = await self._found(topic, queue_id, offset, limits, wait_ms)
            request[HELD].hold(sum(found_range.size for found_range in found.ranges))
            parts = await self._loaded(found.ranges)
        except StoreError as error:
            raise HttpRefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error
        messages = messages_json(parts)
        self._context.rates.pulled(topic, NO_GROUP, len(messages), sum(map(len, parts)))
        return json_response(
            {
                "status": found.status.value,
                "next_offset": found.next_offset,
                "min_offset": found.min_offset,
                "max_offset": found.max_offset,
                "messages": messages,
            }
        )

    def _queue(self, request: web.Request) -> tuple[str, int]:
        name = request.match_info["topic"]
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise HttpRefusedError(HTTPStatus.NOT_FOUND, f"the topic {name} does not exist")
        if not topic.readable:
            raise HttpRefusedError(HTTPStatus.FORBIDDEN, f"the topic {name} is not readable")
        queue_id = _integer("the queue", request.match_info["queue"])
        if not 0 <= queue_id < topic.read_queues:
            raise HttpRefusedError(
                HTTPStatus.NOT_FOUND,
                f"the topic {name} has no queue {queue_id}, "
                f"its queues are 0 to {topic.read_queues - 1}",
            )
        return name, queue_id

    async def _found(
        self, topic: str, queue_id: int, offset: int, limits: PullLimits, wait_ms: int
    ) -> GetMessageResult:
        context = self._context
        deadline = context.loop.time() + wait_ms / 1000
        while True:
            found = context.reader.find(topic, queue_id, offset, limits)
            nothing = found.status in {
                GetMessageStatus.OFFSET_OVERFLOW_ONE,
                GetMessageStatus.NO_MESSAGE_IN_QUEUE,
            }
            if not nothing or context.loop.time() >= deadline:
                return found
            woken = asyncio.Event()
            held = HeldPull(topic, queue_id, None, woken.set)
            if not context.long_polling.hold(held, deadline):
                return found
            try:
                await woken.wait()
            finally:
                context.long_polling.drop(held)

    async def _loaded(self, ranges: Sequence[LogRange]) -> Sequence[Bytes]:
        loaded: asyncio.Future[Sequence[Bytes]] = self._context.loop.create_future()

        def done(parts: Sequence[Bytes], error: StoreError | None) -> None:
            if loaded.done():
                return
            if error is None:
                loaded.set_result(parts)
            else:
                loaded.set_exception(error)

        self._context.reader.load(ranges, done)
        return await loaded


def _number(
    request: web.Request, name: str, usual: int, maximum: int = 2**63 - 1, minimum: int = 0
) -> int:
    value = _integer(name, request.query.get(name, str(usual)))
    if not minimum <= value <= maximum:
        raise HttpRefusedError(
            HTTPStatus.BAD_REQUEST, f"{name} is not between {minimum} and {maximum}: {value}"
        )
    return value


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise HttpRefusedError(
            HTTPStatus.BAD_REQUEST, f"{name} is not an integer: {text!r}"
        ) from None
