"""Requests of a consumer to brokers; the fields are those of RocketMQ 4.9."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from broker.client.config import ConsumerConfig
from broker.client.errors import BadAnswerError, check_success, refusal
from broker.client.message import MessageQueue
from broker.client.received_message import ReceivedMessage
from broker.filter.subscription import Subscription
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import LEADER, RequestCode, ResponseCode
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.ext_fields import ext_int
from broker.remoting.protocol.frame import Frame

PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4


class PullAnswer(NamedTuple):
    """The answer to a pull; ``code`` is one of :data:`PULL_CODES`."""

    code: int
    next_offset: int
    body: bytes
    leads: bool = True
    """Whether the broker leads its group, as far as the answer says."""
    min_offset: int = 0
    """With :attr:`~ResponseCode.PULL_OFFSET_MOVED`: the offset of the queue's first message."""
    max_offset: int = 0
    """With that code: the offset that the next message will get."""


PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class ConsumerRequests:
    """The requests of one member of a group.

    Each raises a :class:`~broker.remoting.protocol.errors.CallError` if no answer came, and a
    :class:`~broker.client.errors.ClientError` for a refusal.
    """

    def __init__(
        self, remoting: RemotingClient, config: ConsumerConfig, group: str, client_id: str
    ) -> None:
        self._remoting = remoting
        self._config = config
        self._group = group
        self._client_id = client_id

    def pull(
        self, address: str, queue: MessageQueue, offset: int, subscription: Subscription
    ) -> asyncio.Future[Frame]:
        """Code 11; :func:`pull_answer` reads the answer. The broker may hold the request for a
        while.

        The request has the subscription, so that a new leader can answer before this client's first
        heartbeat.
        """
        config = self._config
        return self._remoting.invoke_nowait(
            address,
            RequestCode.PULL_MESSAGE,
            {
                **self._queue(queue),
                "queueOffset": str(offset),
                "maxMsgNums": str(config.pull_messages_max),
                "sysFlag": str(PULL_SUSPEND | PULL_SUBSCRIPTION),
                "commitOffset": "0",
                "suspendTimeoutMillis": str(int(config.suspend_seconds * 1000)),
                "subscription": subscription.expression,
                "subVersion": str(subscription.version),
                "expressionType": subscription.expression_type,
            },
            timeout=config.pull_seconds,
        )

    async def committed_offset(self, address: str, queue: MessageQueue) -> int | None:
        """Code 14: the group's offset, or None if it has committed none for the queue.

        ``setZeroIfNotFound`` is a field of 5.x. Without it, Apache's brokers answer 0 for an
        unknown group, and the group would always start at the beginning.
        """
        answer = await self._invoke(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            {**self._queue(queue), "setZeroIfNotFound": "false"},
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = self._number(address, answer, "offset")
        return offset if offset >= 0 else None

    async def commit_offset(self, address: str, queue: MessageQueue, offset: int) -> None:
        """Code 15, answered once the offset is committed."""
        answer = await self._invoke(
            address,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {**self._queue(queue), "commitOffset": str(offset)},
        )
        check_success(address, answer)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Code 31."""
        answer = await self._invoke(address, RequestCode.GET_MIN_OFFSET, self._queue(queue))
        return self._number(address, answer, "offset")

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Code 30: the offset that the next message will get."""
        answer = await self._invoke(address, RequestCode.GET_MAX_OFFSET, self._queue(queue))
        return self._number(address, answer, "offset")

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Code 29: the offset of the first message not older than a time; the end if all are
        older."""
        answer = await self._invoke(
            address,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {**self._queue(queue), "timestamp": str(timestamp_ms), "boundaryType": "lower"},
        )
        return self._number(address, answer, "offset")

    async def send_back(self, address: str, message: ReceivedMessage, delay_level: int) -> None:
        """Code 36: sends back a message that could not be consumed; answered once its next attempt
        is stored."""
        fields = {
            "group": self._group,
            "offset": str(message.record.position),
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": "false",
        }
        if self._config.max_reconsume_times is not None:
            fields["maxReconsumeTimes"] = str(self._config.max_reconsume_times)
        answer = await self._invoke(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        check_success(address, answer)

    async def heartbeat(
        self, address: str, subscriptions: Iterable[Subscription], *, broadcast: bool, latest: bool
    ) -> None:
        """Code 34: this client is a member of the group."""
        where = "CONSUME_FROM_LAST_OFFSET" if latest else "CONSUME_FROM_FIRST_OFFSET"
        body = {
            "clientID": self._client_id,
            "consumerDataSet": [
                {
                    "consumeFromWhere": where,
                    "consumeType": "CONSUME_PASSIVELY",
                    "groupName": self._group,
                    "messageModel": "BROADCASTING" if broadcast else "CLUSTERING",
                    "subscriptionDataSet": [each.as_json() for each in subscriptions],
                    "unitMode": False,
                }
            ],
            "producerDataSet": [],
        }
        answer = await self._invoke(address, RequestCode.HEART_BEAT, {}, orjson.dumps(body))
        check_success(address, answer)

    async def unregister(self, address: str) -> None:
        """Code 35: this client leaves the group."""
        ext = {"clientID": self._client_id, "consumerGroup": self._group}
        check_success(address, await self._invoke(address, RequestCode.UNREGISTER_CLIENT, ext))

    async def client_ids(self, address: str) -> list[str]:
        """Code 38: the members that are connected to this broker."""
        answer = await self._invoke(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
        )
        check_success(address, answer)
        try:
            return [str(client_id) for client_id in orjson.loads(answer.body)["consumerIdList"]]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise BadAnswerError(address, f"not a list of consumers: {error}") from None

    async def _invoke(
        self, address: str, code: RequestCode, ext: Mapping[str, str], body: bytes = b""
    ) -> Frame:
        return await self._remoting.invoke(
            address, code, ext, (body,) if body else (), timeout=self._config.request_seconds
        )

    def _queue(self, queue: MessageQueue) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
        }

    @staticmethod
    def _number(address: str, answer: Frame, name: str) -> int:
        check_success(address, answer)
        return _ext_number(address, answer, name)


def pull_answer(address: str, answer: Frame) -> PullAnswer:
    """Reads the answer to a pull. Raises as :class:`ConsumerRequests` does."""
    if answer.code not in PULL_CODES:
        raise refusal(address, answer.code, answer.remark)
    next_offset = _ext_number(address, answer, "nextBeginOffset")
    leads = answer.ext.get(LEADER, address) == address
    if answer.code != ResponseCode.PULL_OFFSET_MOVED:
        return PullAnswer(answer.code, next_offset, answer.body, leads)
    first = _ext_number(address, answer, "minOffset")
    end = _ext_number(address, answer, "maxOffset")
    return PullAnswer(answer.code, next_offset, answer.body, leads, first, end)


def _ext_number(address: str, answer: Frame, name: str) -> int:
    try:
        return ext_int(answer, name)
    except FieldError as error:
        raise BadAnswerError(address, error.remark) from None
