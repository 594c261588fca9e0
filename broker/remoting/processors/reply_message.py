"""Replies of request-reply: 324 and 325, passed on to the client that asked (326).

A request is an ordinary message with the properties ``REPLY_TO_CLIENT`` and ``CORRELATION_ID``. Its
consumer sends the reply here. The broker hands it to the client of that name, which is connected as
a producer, here or at another member of the group. RocketMQ also stores replies, in a topic that
nobody reads; here they are not stored.
"""

from __future__ import annotations

from functools import partial

from broker.context import BrokerContext
from broker.remoting.connection import Connection
from broker.remoting.forwarded_frame import client_address
from broker.remoting.processors.send_message_header import (
    LONG_NAMES,
    SHORT_NAMES,
    HeaderNames,
)
from broker.remoting.protocol.codes import RequestCode, ResponseCode, refusal_words
from broker.remoting.protocol.errors import CallError, ClientNotOnlineError, RequestError
from broker.remoting.protocol.ext_fields import INT32_MAX, INT64_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from store.message.properties import find_property

CLIENT_SECONDS = 3.0
"""How long the client that asked may take to acknowledge the reply."""


class ReplyMessageProcessor:
    """Handles replies, on the leader."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def reply(self, connection: Connection, request: Frame) -> None:
        """Code 324."""
        self._reply(connection, request, LONG_NAMES, "unitMode")

    def reply_v2(self, connection: Connection, request: Frame) -> None:
        """Code 325."""
        self._reply(connection, request, SHORT_NAMES, "k")

    def _reply(
        self, connection: Connection, request: Frame, names: HeaderNames, unit_mode: str
    ) -> None:
        context = self._context
        context.ingest.check_body(request.body)
        properties = ext_str(request, names.properties, "")
        named = find_property(properties.encode(), b"REPLY_TO_CLIENT")
        if named is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "reply message properties[REPLY_TO_CLIENT] is null"
            )
        asker = named.decode()
        pushed = self._pushed_fields(connection, request, names, unit_mode, properties)
        answer = _Answer(connection, request, asker=asker, queue_id=pushed["queueId"])
        client = context.clients.producer_named(asker)
        call = partial(context.elsewhere.call, asker, "") if client is None else client.call
        call(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            pushed,
            (request.body,),
            timeout=CLIENT_SECONDS,
            done=answer.give,
        )

    def _pushed_fields(
        self,
        connection: Connection,
        request: Frame,
        names: HeaderNames,
        unit_mode: str,
        properties: str,
    ) -> dict[str, str]:
        """The header of the reply as the client that asked gets it."""
        context = self._context
        now_ms = context.wall_clock()
        between = "" if properties.endswith("\x02") else "\x02"
        queue_id = ext_int(request, names.queue_id, minimum=-INT32_MAX, maximum=INT32_MAX)
        return {
            "producerGroup": ext_str(request, names.producer_group),
            "topic": ext_str(request, names.topic),
            "defaultTopic": ext_str(request, names.default_topic, ""),
            "defaultTopicQueueNums": str(_number(request, names.default_queues)),
            "queueId": str(max(queue_id, 0)),
            "sysFlag": str(_number(request, names.sys_flag)),
            "bornTimestamp": str(ext_int(request, names.born_timestamp, maximum=INT64_MAX)),
            "flag": str(_number(request, names.flag)),
            "properties": f"{properties}{between}PUSH_REPLY_TIME\x01{now_ms}\x02",
            "reconsumeTimes": str(_number(request, names.reconsume_times)),
            "unitMode": "true" if ext_bool(request, unit_mode, False) else "false",
            "bornHost": client_address(connection, request),
            "storeHost": str(context.config.own.address),
            "storeTimestamp": str(now_ms),
        }


class _Answer:
    """The future answer to one reply: whether the client that asked has it."""

    __slots__ = ("asker", "connection", "queue_id", "request")

    def __init__(
        self, connection: Connection, request: Frame, *, asker: str, queue_id: str
    ) -> None:
        self.connection = connection
        self.request = request
        self.asker = asker
        self.queue_id = queue_id

    def give(self, acknowledged: Frame | None, failure: CallError | None) -> None:
        if acknowledged is not None and acknowledged.code == ResponseCode.SUCCESS:
            ext = {
                "msgId": "0",  # RocketMQ's, of a reply that is not stored
                "queueId": self.queue_id,
                "queueOffset": "0",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            }
            self.connection.respond(self.request, ext=ext)
            return
        if isinstance(failure, ClientNotOnlineError):
            remark = f"push reply message fail, channel of <{self.asker}> not found."
        else:
            told = acknowledged
            why = failure if told is None else refusal_words(told.code, told.remark)
            remark = f"push reply message to {self.asker} fail: {why}"
        self.connection.respond(self.request, ResponseCode.SYSTEM_ERROR, remark)


def _number(request: Frame, name: str) -> int:
    return ext_int(request, name, 0, minimum=-INT32_MAX, maximum=INT32_MAX)
