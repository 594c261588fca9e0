"""Copies the messages of a topic into another cluster, each queue in order.

A queue of the target takes messages of one queue of the source. Its last message names its origin,
so the mirror continues there: no offset is kept elsewhere that could be stale. A send with an
unknown outcome is resolved in the same way, by reading the last message.

Only the mirror may write into these queues. It notices other writers by the offsets that its sends
get.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from broker.cli.mirror.origin import Origin, copied_properties
from broker.cli.terminal.command_error import CommandError
from broker.client.errors import ClientError
from broker.client.message import Message, MessageQueue, SendResult
from broker.client.producer.producer import Producer
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import (
    AdminClient,
    NoAnswerError,
    NoLeaderError,
    UnreachableError,
    when_led,
)
from broker.cluster_admin.offset_resets import offset_at
from broker.cluster_admin.peeking import Peek, Window
from broker.cluster_admin.topics import QueueView, view_queues
from broker.remoting.protocol.errors import CallError

log = logging.getLogger("dledger.mirror")

BATCH_BYTES = 1 << 20
"""The bytes of bodies in a batch. A larger message is sent alone."""

BATCH_MESSAGES = 32
TRY_AGAIN_SECONDS = 1.0
PASSING = (ClientError, CallError, NoLeaderError, UnreachableError, NoAnswerError)
"""How long a send is retried, because either cluster may be unavailable for a while."""


@dataclass(slots=True)
class Link:
    """A queue of the source, and the queue of the target that gets its messages."""

    source: MessageQueue
    target: MessageQueue
    next_offset: int
    """The next offset in the source."""
    source_end: int
    """The end of the source's queue when the link was made."""
    target_end: int
    """The offset that the next copy gets."""


class TopicMirror:
    """Copies one topic. ``start`` is where queues without a copy begin: earliest, latest or a time
    in ms. ``count`` is called with the number of copied messages."""

    def __init__(
        self,
        source: AdminClient,
        target: AdminClient,
        producer: Producer,
        topic: str,
        *,
        start: str | int,
        count: Callable[[int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._producer = producer
        self._topic = topic
        self._start = start
        self._count = count

    async def copy(self) -> None:
        """Copies the present messages of the source.

        Raises :class:`CommandError` if the target has too few queues or other messages, and the
        errors of requests.
        """
        await self._copy_all(await self.links(), follow=False)

    async def follow(self) -> None:
        """Copies present and new messages without end. It waits while a cluster is unavailable.

        Raises as :meth:`copy`; from the second round on failed requests are retried.
        """
        links = await self.links()
        while True:
            try:
                await self._copy_all(links, follow=True)
            except PASSING as error:
                log.warning("%s: %s; will be retried", self._topic, error)
            while True:
                await asyncio.sleep(TRY_AGAIN_SECONDS)
                with suppress(*PASSING):
                    links = await self.links()
                    break

    async def links(self) -> list[Link]:
        """The queue of the target for each queue of the source: by its copies, or a free one for a
        new queue."""
        sources, targets = await asyncio.gather(
            when_led(lambda: view_queues(self._source, self._topic)),
            when_led(lambda: view_queues(self._target, self._topic)),
        )
        lasts = await asyncio.gather(*map(self._last, targets))
        free = [target for target, last in zip(targets, lasts, strict=True) if last is None]
        copied = {
            (last.broker, last.queue_id): (target, last)
            for target, last in zip(targets, lasts, strict=True)
            if last is not None
        }
        links = []
        for source in sources:
            found = copied.pop((source.broker, source.queue_id), None)
            if found is not None:
                links.append(await self._resumed(source, *found))
            elif free:
                links.append(await self._begun(source, free.pop(0)))
            else:
                raise CommandError(
                    f"{self._topic} has {len(sources)} queues in the source, but {len(targets)} "
                    "here: each needs its own; `dledger topic alter --queues` adds queues"
                )
        if copied:
            target, last = next(iter(copied.values()))
            raise CommandError(
                f"{_name(target)} of {self._topic} holds copies of queue {last.queue_id} of "
                f"{last.broker}, which the source does not have"
            )
        return links

    async def _last(self, target: QueueView) -> Origin | None:
        """The origin of the newest message; None for a queue that never had a message."""
        if target.max_offset == 0:
            return None
        place = MessageQueue(self._topic, target.broker, target.queue_id)
        message = await self._message(self._target, place, target.max_offset - 1)
        where = f"{_name(target)} of {self._topic}"
        if message is None:
            raise CommandError(
                f"{where} lost its newest message to retention: where to continue is unknown; "
                "mirror into a new topic"
            )
        try:
            origin = Origin.told_by(message)
        except ValueError as error:
            raise CommandError(f"{where}: {error}") from error
        if origin is None:
            raise CommandError(
                f"{where} has messages that are not copies: only the mirror may write to it"
            )
        return origin

    async def _message(
        self, admin: AdminClient, queue: MessageQueue, offset: int
    ) -> ReceivedMessage | None:
        peek = Peek(admin, self._topic, Window())
        async for message in peek.read(queue, offset, offset + 1):
            return message
        return None

    async def _resumed(self, source: QueueView, target: QueueView, last: Origin) -> Link:
        place = MessageQueue(self._topic, source.broker, source.queue_id)
        if last.offset >= source.min_offset:
            message = await self._message(self._source, place, last.offset)
            if message is None or Origin.of(message) != last:
                raise CommandError(
                    f"{_name(source)} of {self._topic} is not the queue that was copied: another "
                    f"message is at offset {last.offset}"
                )
        return self._link(source, target, last.offset + 1)

    async def _begun(self, source: QueueView, target: QueueView) -> Link:
        address = (await self._source.route(self._topic)).masters[source.broker]
        begin = await offset_at(self._source, address, self._topic, source, self._start)
        return self._link(source, target, begin)

    def _link(self, source: QueueView, target: QueueView, begin: int) -> Link:
        if begin < source.min_offset:
            missed = source.min_offset - begin
            log.warning("%s of %s: %d messages are gone", _name(source), self._topic, missed)
        return Link(
            MessageQueue(self._topic, source.broker, source.queue_id),
            MessageQueue(self._topic, target.broker, target.queue_id),
            max(begin, source.min_offset),
            source.max_offset,
            target.max_offset,
        )

    async def _copy_all(self, links: list[Link], *, follow: bool) -> None:
        await all_or_none([self._copy_queue(link, follow=follow) for link in links])

    async def _copy_queue(self, link: Link, *, follow: bool) -> None:
        peek = Peek(self._source, self._topic, Window())
        end = None if follow else link.source_end
        async for pulled in peek.batches(link.source, link.next_offset, end):
            for batch in _batches(pulled):
                result = await self._send(batch, link.target)
                if result.queue_offset != link.target_end:
                    raise CommandError(
                        f"queue {link.target.queue_id} of {link.target.broker} takes messages of "
                        f"others: a copy got offset {result.queue_offset}, not {link.target_end}; "
                        "is there another mirror?"
                    )
                link.target_end += len(batch)
                self._count(len(batch))

    async def _send(self, batch: list[Message], queue: MessageQueue) -> SendResult:
        if len(batch) == 1:
            return await self._producer.send(batch[0], queue)
        return await self._producer.send_batch(batch, queue)


def _batches(pulled: list[ReceivedMessage]) -> Iterator[list[Message]]:
    """Copies of the messages, in batches."""
    batch: list[Message] = []
    size = 0
    for message in pulled:
        body = message.body
        if batch and (size + len(body) > BATCH_BYTES or len(batch) == BATCH_MESSAGES):
            yield batch
            batch, size = [], 0
        properties = copied_properties(message)
        batch.append(Message(message.topic, body, properties=properties, flag=message.record.flag))
        size += len(body)
    if batch:
        yield batch


async def all_or_none(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all to their end. The first error cancels the others, and is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _name(queue: QueueView) -> str:
    return f"queue {queue.queue_id} of {queue.broker}"
