"""Requests that only the leader of a broker group can answer, retried until it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.client.errors import ClientError, ClosedError, DeadlineError
from broker.client.message import MessageQueue
from broker.client.route.route_cache import Routes
from broker.remoting.protocol.errors import CallError, ClientClosedError


async def until_answered(
    routes: Routes,
    queue: MessageQueue,
    ask: Callable[[str], Awaitable[None]],
    *,
    seconds: float,
    operation: str,
) -> None:
    """Calls ``ask`` with the address of the queue's leader, and repeats it after retriable
    failures.

    Raises :class:`~broker.client.errors.DeadlineError` after ``seconds``, and any final error at
    once.
    """
    last: Exception | None = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await ask(routes.leader(queue))
                    return
                except ClientClosedError:
                    raise ClosedError("the client was closed") from None
                except (CallError, ClientError) as error:
                    if not error.retriable:
                        raise
                    last = error
                await routes.recover(queue.topic, queue.broker)
    except TimeoutError:
        raise DeadlineError(operation, seconds, last) from None
