"""The dead letters of consumer groups: counts, lists, and resends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable

from broker.client.message import PROPERTY_DELAY, PROPERTY_UNIQUE_KEY, Message
from broker.client.producer.producer import Producer
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import AdminClient, document_of
from broker.cluster_admin.consumer_group_views import find_group
from broker.cluster_admin.peeking import Peek, Window
from broker.cluster_admin.topics import view_queues
from broker.command_error import CommandError
from broker.remoting.protocol.codes import RequestCode
from broker.topics_and_groups import DLQ_PREFIX, dead_letter_topic

OWN_PROPERTIES = (PROPERTY_UNIQUE_KEY, PROPERTY_DELAY)
"""Properties of a single attempt, which a resent message does not keep."""


async def dead_letter_counts(admin: AdminClient) -> list[dict[str, object]]:
    """``{"group", "topic", "messages"}`` for each group with dead letters, by name."""
    answer = await admin.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    names = [name for name in document_of(answer)["topicList"] if name.startswith(DLQ_PREFIX)]
    found: list[dict[str, object]] = []
    for name in sorted(names):
        queues = await view_queues(admin, name)
        count = sum(queue.max_offset - queue.min_offset for queue in queues)
        found.append({"group": name.removeprefix(DLQ_PREFIX), "topic": name, "messages": count})
    return found


async def find_dead_letters(
    admin: AdminClient, group: str, window: Window, ids: Collection[str] = ()
) -> list[ReceivedMessage]:
    """The dead letters in the window; with ``ids`` only these. Raises :class:`CommandError` for an
    id that is not found, and for an unknown group."""
    return [message async for message in dead_letters(admin, group, window, ids)]


async def dead_letters(
    admin: AdminClient, group: str, window: Window, ids: Collection[str] = ()
) -> AsyncIterator[ReceivedMessage]:
    """As :func:`find_dead_letters`, one by one; a missing id raises at the end."""
    await find_group(admin, group)
    missing = wanted = {each.upper() for each in ids}
    async for message in Peek(admin, dead_letter_topic(group), window).messages():
        if not wanted or message.message_id in wanted:
            missing = missing - {message.message_id}
            yield message
    if missing:
        raise CommandError(f"no dead letter of {group} has the id {', '.join(sorted(missing))}")


async def send_again(
    producer: Producer, topic: str, messages: Iterable[ReceivedMessage]
) -> AsyncIterator[ReceivedMessage]:
    """Sends messages to the topic, one by one, and gives each one once it is stored. A body goes as
    it is stored, also one that cannot be decompressed."""
    for message in messages:
        kept = {k: v for k, v in message.properties.items() if k not in OWN_PROPERTIES}
        again = Message(
            topic,
            message.raw_body,
            properties=kept,
            flag=message.record.flag,
            compressed=message.compressed,
        )
        await producer.send(again)
        yield message
