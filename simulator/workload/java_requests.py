"""The requests of RocketMQ's Java push consumer, 4.9, field by field as it sends them.

Only the connections of the project's own client are used, and the decoder of records.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from broker.client.message import MessageQueue
from broker.remoting.protocol.frame import Frame
from simulator.workload.client_connections import ClientConnections
from simulator.workload.java_hash import java_hash
from store.message.record import MessageRecord

PULL, SEND_BACK, QUERY_OFFSET, UPDATE_OFFSET = 11, 36, 14, 15
HEARTBEAT, UNREGISTER, MEMBERS, LOCK, UNLOCK = 34, 35, 38, 41, 42
MEMBERS_CHANGED, RESET_CLIENT, RESET = 40, 220, 222
SUCCESS, SYSTEM_ERROR, NOT_FOUND, RETRY_AT_ONCE, OFFSET_MOVED = 0, 1, 19, 20, 21

COMMIT, SUSPEND = 1, 2
MESSAGES_MAX = 32
BYTES_MAX = 900
"""Of an answer: a few messages."""

SUSPEND_SECONDS, PULL_SECONDS = 4.0, 6.0


class JavaRequests:
    """The requests of one member of a group. The caller gets any frame that comes, or an error of
    the connection."""

    def __init__(self, connections: ClientConnections, group: str, client_id: str) -> None:
        self.client_id = client_id
        self._connections, self._remoting = connections, connections.remoting
        self._group = group

    async def ask(
        self, address: str, code: int, ext: Mapping[str, str], body: object = None
    ) -> Frame:
        """A request that is no pull."""
        encoded = () if body is None else (json.dumps(body).encode(),)
        return await self._connections.ask(address, code, ext, encoded)

    async def pull(
        self, address: str, queue: MessageQueue, offset: int, committed: int, version: int
    ) -> Frame:
        """``committed`` travels along, if it is above 0. The heartbeats say what is wanted.

        An answer ends at a limit of bytes, as every full one does; this one is a field of 5.x.
        """
        ext = {
            **self._queue(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(MESSAGES_MAX),
            "maxMsgBytes": str(BYTES_MAX),
            "sysFlag": str(SUSPEND | (COMMIT if committed > 0 else 0)),
            "commitOffset": str(committed),
            "suspendTimeoutMillis": str(int(SUSPEND_SECONDS * 1000)),
            "subVersion": str(version),
            "expressionType": "TAG",
        }
        return await self._remoting.invoke(address, PULL, ext, timeout=PULL_SECONDS)

    def commit(self, address: str, queue: MessageQueue, offset: int) -> None:
        """Commits an offset one-way, as clients do every 5 s."""
        ext = {**self._queue(queue), "commitOffset": str(offset)}
        self._remoting.push(address, UPDATE_OFFSET, ext)

    async def committed(self, address: str, queue: MessageQueue) -> Frame:
        """The committed offset of the group."""
        return await self.ask(address, QUERY_OFFSET, self._queue(queue))

    async def heartbeat(
        self, address: str, wanted: Mapping[str, Collection[str]], version: int
    ) -> Frame:
        """A heartbeat. ``wanted``: tags by topic; none for all."""
        subscriptions = [
            {
                "classFilterMode": False,
                "topic": topic,
                "subString": " || ".join(tags) or "*",
                "tagsSet": sorted(tags),
                "codeSet": sorted(map(java_hash, tags)),
                "subVersion": version,
                "expressionType": "TAG",
            }
            for topic, tags in wanted.items()
        ]
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        body = {
            "clientID": self.client_id,
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
            "consumerDataSet": [consumer],
        }
        return await self.ask(address, HEARTBEAT, {}, body)

    async def unregister(self, address: str) -> Frame:
        """Leaves the group."""
        ext = {"clientID": self.client_id, "consumerGroup": self._group}
        return await self.ask(address, UNREGISTER, ext)

    async def members(self, address: str) -> list[str] | None:
        """The client ids of the members; ``None`` if the broker does not answer that."""
        answer = await self.ask(address, MEMBERS, {"consumerGroup": self._group})
        return list(json.loads(answer.body)["consumerIdList"]) if answer.code == SUCCESS else None

    async def lock(self, address: str, queues: Iterable[MessageQueue]) -> list[MessageQueue] | None:
        """Locks queues. Returns those that this client holds now; ``None`` without an answer."""
        answer = await self.ask(address, LOCK, {}, self._locks(queues))
        if answer.code != SUCCESS:
            return None
        return [
            MessageQueue(each["topic"], each["brokerName"], each["queueId"])
            for each in json.loads(answer.body)["lockOKMQSet"]
        ]

    def unlock(self, address: str, queue: MessageQueue) -> None:
        """Unlocks one-way, as Java's clients do when they lose a queue to another member."""
        body = json.dumps(self._locks([queue])).encode()
        self._remoting.push(address, UNLOCK, {}, (body,))

    async def send_back(
        self, address: str, record: MessageRecord, level: int, retries_max: int
    ) -> Frame:
        """Sends back a message that could not be consumed."""
        ext = {
            "group": self._group,
            "offset": str(record.position),
            "delayLevel": str(level),
            "originMsgId": record.property_map.get("UNIQ_KEY", ""),
            "originTopic": record.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(retries_max),
        }
        return await self.ask(address, SEND_BACK, ext)

    def _queue(self, queue: MessageQueue) -> dict[str, str]:
        group, queue_id = self._group, str(queue.queue_id)
        return {"consumerGroup": group, "topic": queue.topic, "queueId": queue_id}

    def _locks(self, queues: Iterable[MessageQueue]) -> dict[str, object]:
        named = [
            {"topic": each.topic, "brokerName": each.broker, "queueId": each.queue_id}
            for each in queues
        ]
        return {"consumerGroup": self._group, "clientId": self.client_id, "mqSet": named}


def share_of(
    queues: Iterable[MessageQueue], members: Iterable[str], member: str
) -> list[MessageQueue]:
    """The queues of one member: ``AllocateMessageQueueAveragely``; none for a stranger."""
    sorted_queues, sorted_members = sorted(queues), sorted(members)
    if member not in sorted_members:
        return []
    place = sorted_members.index(member)
    least, more = divmod(len(sorted_queues), len(sorted_members))
    first = place * least + min(place, more)
    return sorted_queues[first : first + least + (place < more)]


def next_offset(answer: Frame) -> int:
    return int(str((answer.ext or {})["nextBeginOffset"]))
