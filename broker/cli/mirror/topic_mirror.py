"""Copies the messages of a topic into another cluster, each queue in order.

A queue of the target takes messages of one queue of the source. Its last message names its origin,
so a mirror that starts continues there: no offset is kept elsewhere that could be stale. From then
on the mirror knows what it has copied. It repeats a send until that is answered, and never looks at
the target for the outcome: a read does not wait for a write that a slow disk still holds up.

Only the mirror may write into these queues. It notices other writers by the offsets that its sends
get.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from broker.cli.mirror.origin import Origin, copied_properties
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError, IllegalMessageError
from broker.client.message import Message, MessageQueue, SendResult
from broker.client.producer.producer import Producer
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import AdminClient, NoLeaderError, NoTopicError, when_led
from broker.cluster_admin.offset_resets import EARLIEST, LATEST, offset_at
from broker.cluster_admin.peeking import Peek, Window
from broker.cluster_admin.topics import QueueView, view_queues
from broker.command_error import CommandError
from broker.remoting.protocol.errors import CallError

log = logging.getLogger("dledger.mirror")

BATCH_BYTES = 1 << 20
"""The bytes of bodies in a batch. A larger message is sent alone."""

BATCH_MESSAGES = 32
TRY_AGAIN_SECONDS = 1.0
SETTLED_SECONDS = 1.0
"""A mirror that was killed may have left copies on their way. Where queues hold copies, a new one
begins when they have not grown for so long."""

NEW_QUEUES_SECONDS = 30.0
"""How often a mirror that follows looks for new queues of the source, as clients ask for routes."""

TOLD_SECONDS = 30.0
"""How often it is told of a queue what its mirror waits for."""

PRODUCER = ProducerConfig(
    deadline_seconds=10 * 365 * 86_400.0,  # a copy that is given up could be stored later
    compress_over_bytes=0,  # bodies are copied as they are stored
)
"""The settings of the producer that a mirror needs."""

FAILURES = (ClientError, CallError, CommandError)


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
    last: Origin | None
    """The last message that was copied."""


class TopicMirror:
    """Copies one topic. ``producer`` has the settings :data:`PRODUCER`. ``start`` is where queues
    without a copy begin: earliest, latest or a time in ms. ``count`` is called with the number of
    copied messages.

    It waits while a cluster is unavailable, but for its start.
    """

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
        errors of requests that cannot succeed later.
        """
        links = await self.links()
        await all_or_none([self._copy_queue(link, link.source_end) for link in links])

    async def follow(self) -> None:
        """Copies present and new messages without end, also of queues that are new in the source.

        Raises as :meth:`copy`.
        """
        await self._follow(await self.links(), [])

    async def _follow(self, links: list[Link], others: list[Link]) -> None:
        """Follows these links and those that come; ``others`` are being followed."""
        await all_or_none(
            [
                *(self._copy_queue(link, None) for link in links),
                self._follow_new([*others, *links]),
            ]
        )

    async def _follow_new(self, known: list[Link]) -> None:
        new: list[Link] = []
        while not new:
            await asyncio.sleep(NEW_QUEUES_SECONDS)
            try:
                new = await self.links(known)
            except FAILURES as error:
                if not error.retriable:
                    raise
        await self._follow(new, known)

    async def links(self, known: Sequence[Link] = ()) -> list[Link]:
        """The queue of the target for each queue of the source: by its copies, or a free one for a
        new queue. Queues of ``known`` links are left out."""
        sources, targets = await asyncio.gather(
            self._views("source", self._source),
            self._settled(known),
        )
        linked = {link.source for link in known}, {link.target for link in known}
        count, places = len(sources), len(targets)
        sources = [each for each in sources if self._queue(each) not in linked[0]]
        targets = [each for each in targets if self._queue(each) not in linked[1]]
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
                    f"{self._topic} has {count} queues in the source, but {places} "
                    "here: each needs its own; `dledger topic alter --queues` adds queues"
                )
        if copied:
            target, last = next(iter(copied.values()))
            raise CommandError(
                f"{_name(target)} of {self._topic} holds copies of queue {last.queue_id} of "
                f"{last.broker}, which the source does not have"
            )
        if self._start == LATEST:
            self._start = EARLIEST  # what a later queue has came after this start
        return links

    async def _views(self, cluster: str, admin: AdminClient) -> list[QueueView]:
        try:
            return await when_led(lambda: view_queues(admin, self._topic))
        except NoTopicError as error:
            raise NoTopicError(self._topic, cluster, error.gone) from error

    async def _settled(self, known: Sequence[Link]) -> list[QueueView]:
        """The queues of the target. Without links nobody writes to them any more."""
        before: list[QueueView] = []
        while True:
            views = await self._views("target", self._target)
            if known or views == before or not any(each.max_offset for each in views):
                return views
            before = views
            await asyncio.sleep(SETTLED_SECONDS)

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

    async def _require_same(self, source: QueueView, last: Origin) -> None:
        """Raises :class:`CommandError` if the source has another message where the last one was."""
        if last.offset >= source.min_offset:
            message = await self._message(self._source, self._queue(source), last.offset)
            if message is None or Origin.of(message) != last:
                raise self._other_queue(self._queue(source), last.offset)

    async def _resumed(self, source: QueueView, target: QueueView, last: Origin) -> Link:
        await self._require_same(source, last)
        return self._link(source, target, last.offset + 1, last)

    async def _begun(self, source: QueueView, target: QueueView) -> Link:
        address = (await self._source.route(self._topic)).masters[source.broker]
        begin = await offset_at(self._source, address, self._topic, source, self._start)
        return self._link(source, target, begin, None)

    def _link(self, source: QueueView, target: QueueView, begin: int, last: Origin | None) -> Link:
        if begin < source.min_offset:
            missed = source.min_offset - begin
            log.warning("%s of %s: %d messages are gone", _name(source), self._topic, missed)
        return Link(
            self._queue(source),
            self._queue(target),
            max(begin, source.min_offset),
            source.max_offset,
            target.max_offset,
            last,
        )

    def _queue(self, view: QueueView) -> MessageQueue:
        return MessageQueue(self._topic, view.broker, view.queue_id)

    async def _copy_queue(self, link: Link, end: int | None) -> None:
        """Copies up to below ``end``, or without end. It waits while the source is unavailable."""
        loop = asyncio.get_running_loop()
        failed, tell_at = False, loop.time()
        while True:
            try:
                if failed:
                    await self._require_unchanged(link)
                await self._copy_on(link, end)
                return
            except FAILURES as error:
                if not error.retriable:
                    raise
                failed = True
                if loop.time() >= tell_at:
                    tell_at = loop.time() + TOLD_SECONDS
                    log.warning("%s: %s; will be retried", self._topic, error)
            await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def _require_unchanged(self, link: Link) -> None:
        """As :meth:`_require_same`, after a failure of the source."""
        if link.last is None:
            return
        for source in await view_queues(self._source, self._topic):
            if self._queue(source) == link.source:
                await self._require_same(source, link.last)
                return
        raise NoLeaderError(f"{link.source.broker} is not in the route of {self._topic}")

    async def _copy_on(self, link: Link, end: int | None) -> None:
        peek = Peek(self._source, self._topic, Window())
        async for pulled in peek.batches(link.source, link.next_offset, end):
            for messages in _batches(pulled):
                await self._copy_batch(messages, link)

    async def _copy_batch(self, messages: list[ReceivedMessage], link: Link) -> None:
        if messages[0].queue_offset < link.next_offset:
            raise self._other_queue(link.source, messages[0].queue_offset)
        result = await self._send([_copy(each) for each in messages], link.target)
        if result.queue_offset != link.target_end:
            raise CommandError(
                f"queue {link.target.queue_id} of {link.target.broker} takes messages of "
                f"others: a copy got offset {result.queue_offset}, not {link.target_end}; "
                "is there another mirror?"
            )
        link.target_end += len(messages)
        link.last = Origin.of(messages[-1])
        link.next_offset = link.last.offset + 1
        self._count(len(messages))

    def _other_queue(self, source: MessageQueue, offset: int) -> CommandError:
        return CommandError(
            f"queue {source.queue_id} of {source.broker} of {self._topic} is not the queue that "
            f"was copied: another message is at offset {offset}"
        )

    async def _send(self, batch: list[Message], queue: MessageQueue) -> SendResult:
        if len(batch) == 1:
            sent = self._producer.send_nowait(batch[0], queue)
        else:
            sent = self._producer.send_batch_nowait(batch, queue)
        try:
            while not (await asyncio.wait((sent,), timeout=TOLD_SECONDS))[0]:
                log.warning("%s: the target has not answered yet; it is asked on", self._topic)
            return sent.result()
        finally:
            sent.cancel()


def _batches(pulled: list[ReceivedMessage]) -> Iterator[list[ReceivedMessage]]:
    """The messages in batches. Those of a batch are compressed alike, or not at all."""
    batch: list[ReceivedMessage] = []
    size = 0
    for message in pulled:
        more = len(message.raw_body)
        full = size + more > BATCH_BYTES or len(batch) == BATCH_MESSAGES
        if batch and (full or message.compressed != batch[0].compressed):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


def _copy(message: ReceivedMessage) -> Message:
    """Raises :class:`CommandError` for a message that has no room for its origin."""
    try:
        return Message(
            message.topic,
            message.raw_body,
            properties=copied_properties(message),
            flag=message.record.flag,
            compressed=message.compressed,
        )
    except IllegalMessageError as error:
        queue = message.queue
        raise CommandError(
            f"{queue.topic}: the message at offset {message.queue_offset} of queue "
            f"{queue.queue_id} of {queue.broker} cannot be copied: {error}"
        ) from error


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
