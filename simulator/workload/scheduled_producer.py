"""A client that sends scheduled messages, and recalls some of the timed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random

from broker.client.errors import ClientError
from broker.client.message import Message, SendResult
from broker.client.producer.producer import Producer
from broker.remoting.protocol.errors import CallError
from simulator.hosts.client_host import ClientHost
from simulator.workload.history import History, Sent
from simulator.workload.message_content import content_of, message_of
from simulator.workload.producer import DEADLINE_SECONDS, note_outcome, producer_of
from simulator.workload.stoppable_client import StoppableClient

LEVELS = (1, 1, 2)
DELAY_MS_MAX = 4000
PAUSE_MAX = 0.2
RECALLED_SHARE = 0.3
RECALL_SECONDS_MAX = 1.2 * DELAY_MS_MAX / 1000
"""Some recalls come when the message is due, and some too late."""


class ScheduledMessagesProducer(StoppableClient):
    """Sends to one topic, with a delay level or a delivery time."""

    def __init__(
        self,
        topic: str,
        history: History,
        rng: Random,
        *,
        recalling: Random,
        pause_max: float = PAUSE_MAX,
        bursts: Sequence[int] = (1,),
    ) -> None:
        """``recalling`` decides what is taken back, and when. ``bursts``: the numbers of messages
        at the same instant, one of these each time."""
        self._topic = topic
        self._history = history
        self._rng = rng
        self._recalling = recalling
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause_max = pause_max
        self._bursts = bursts

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        rng = self._rng
        producer = producer_of(client_host, rng)
        await producer.start()
        while self._working:
            await asyncio.sleep(rng.uniform(0.005, self._pause_max))
            for _ in range(rng.choice(self._bursts) if len(self._bursts) > 1 else 1):
                self._send(client_host, producer)
        await asyncio.sleep(DEADLINE_SECONDS + 1.0)
        await producer.close()

    def _send(self, client_host: ClientHost, producer: Producer) -> None:
        sent = self._history.send(client_host.name, self._rng.randrange(50))
        try:
            answer = producer.send_nowait(self._message(sent, client_host.clock.wall_ms()))
        except (ClientError, CallError) as error:
            self._history.fail(sent, f"{type(error).__name__}: {error}", unknown=False)
        else:
            answer.add_done_callback(partial(self._answered, producer, sent))

    def _message(self, sent: Sent, born_ms: int) -> Message:
        rng, content = self._rng, content_of(sent.number, born_ms)
        if rng.random() < 0.5:
            sent.delay_level = rng.choice(LEVELS)
            return message_of(self._topic, sent, content, delay_level=sent.delay_level)
        delay = {"TIMER_DELAY_MS": str(rng.randrange(20, DELAY_MS_MAX))}
        content = content._replace(properties={**content.properties, **delay})
        return message_of(self._topic, sent, content)

    def _answered(self, producer: Producer, sent: Sent, answer: asyncio.Future[SendResult]) -> None:
        note_outcome(self._history, [sent], answer)
        if answer.exception() is not None:
            return
        result = answer.result()
        if result.recall_handle and self._recalling.random() < RECALLED_SHARE:
            task = asyncio.get_running_loop().create_task(self._recall(producer, sent, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _recall(self, producer: Producer, sent: Sent, result: SendResult) -> None:
        await asyncio.sleep(self._recalling.uniform(0, RECALL_SECONDS_MAX))
        try:
            await producer.recall(result)
        except (ClientError, CallError) as error:
            # It is delivered already, or that is unknown: the log says which came first.
            self._history.note(sent.client, f"message {sent.number} is not recalled: {error}")
        else:
            self._history.recall(sent, result.queue)
