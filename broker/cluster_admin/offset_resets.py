"""Offset resets of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.client.consumer.offset_reset_body import reset_offsets as reset_offsets_of
from broker.cluster_admin.admin_client import AdminClient, RefusedError
from broker.cluster_admin.topics import QueueView, view_queues
from broker.remoting.protocol.codes import RequestCode, ResponseCode

EARLIEST, LATEST = "earliest", "latest"
GROUP_IS_AWAY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


async def reset_offsets(
    admin: AdminClient, group: str, topic: str, target: str | int
) -> dict[tuple[str, int], int]:
    """Moves the group in every queue of the topic; returns the new offsets.

    A broker with members of the group resets the offsets and notifies the members. At the others
    the offsets are committed.
    """
    queues = await view_queues(admin, topic)
    offsets: dict[tuple[str, int], int] = {}
    for broker, address in (await admin.route(topic)).masters.items():
        here = [queue for queue in queues if queue.broker == broker]
        moved = await _reset_members(admin, address, group, topic, target)
        if moved is None:
            moved = await _commit_offsets(admin, address, group, topic, target=target, queues=here)
        offsets |= {(broker, queue_id): offset for queue_id, offset in sorted(moved.items())}
    return offsets


async def _reset_members(
    admin: AdminClient, address: str, group: str, topic: str, target: str | int
) -> dict[int, int] | None:
    """The new offsets by queue id; None if the group has no members at this broker."""
    timestamp_ms = {EARLIEST: 0, LATEST: -1}.get(str(target), target)
    ext = {"topic": topic, "group": group, "timestamp": timestamp_ms, "isForce": True}
    try:
        answer = await admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    except RefusedError as error:
        if error.code in GROUP_IS_AWAY:
            return None
        raise
    return {queue.queue_id: offset for queue, offset in reset_offsets_of(answer.body).items()}


async def _commit_offsets(
    admin: AdminClient,
    address: str,
    group: str,
    topic: str,
    *,
    target: str | int,
    queues: Sequence[QueueView],
) -> dict[int, int]:
    async def move(queue: QueueView) -> int:
        offset = await offset_at(admin, address, topic, queue, target)
        ext = {"topic": topic, "queueId": queue.queue_id}
        ext |= {"consumerGroup": group, "commitOffset": offset}
        await admin.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        return offset

    offsets = await asyncio.gather(*map(move, queues))
    return {queue.queue_id: offset for queue, offset in zip(queues, offsets, strict=True)}


async def offset_at(
    admin: AdminClient, address: str, topic: str, queue: QueueView, target: str | int
) -> int:
    """The offset of ``target`` in a queue; for a time: of the first message that is not older."""
    if target == EARLIEST:
        return queue.min_offset
    if target == LATEST:
        return queue.max_offset
    ext = {"topic": topic, "queueId": queue.queue_id, "timestamp": target}
    found = await admin.ask(
        address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext | {"boundaryType": "lower"}
    )
    return int(str(found.ext["offset"]))


async def foresee_offsets(
    admin: AdminClient, topic: str, target: str | int
) -> dict[tuple[str, int], int]:
    """The offsets that :func:`reset_offsets` would set; nothing moves."""
    queues, masters = await view_queues(admin, topic), (await admin.route(topic)).masters
    offsets = await asyncio.gather(
        *(offset_at(admin, masters[queue.broker], topic, queue, target) for queue in queues)
    )
    return {
        (queue.broker, queue.queue_id): offset
        for queue, offset in zip(queues, offsets, strict=True)
    }
