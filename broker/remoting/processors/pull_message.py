"""Pulling: codes 11 and 361 (RocketMQ's ``PullMessageProcessor``), on leaders and followers.

:mod:`broker.delivery.fetch` decides what a pull may do and returns; this module reads and writes
the fields.
"""

from __future__ import annotations

from broker.admin.membership import leader_address
from broker.context import BrokerContext
from broker.delivery.fetch import Fetched, FetchRequest, fetch_limits
from broker.delivery.message_reader import GetMessageStatus
from broker.errors import RefusedError
from broker.filter.subscription import TAG_TYPE
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.processors.callers import Callers, hold
from broker.remoting.protocol.codes import LEADER, ResponseCode
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from store.errors import StoreError

FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class PullMessageProcessor:
    """Handles pulls."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._delivery = context.delivery
        self._callers = Callers(context)

    def pull(self, connection: Connection, request: Frame) -> None:
        """Codes 11 and 361, which differ in name only."""
        answer = _Answer(connection, request, self._context)
        wanted = _fetch_request(connection, request)
        if self._delivery.quotas is not None:
            wanted = wanted._replace(caller=self._callers.of(connection, request))
        fetch = self._delivery.fetch(wanted, answer.give)
        if fetch.held is not None or fetch.waits:
            request.forget_content()
            hold(connection, request, fetch.waits)


class _Answer:
    """The future answer to a pull."""

    __slots__ = ("connection", "context", "request")

    def __init__(self, connection: Connection, request: Frame, context: BrokerContext) -> None:
        self.connection = connection
        self.context = context
        self.request = request

    def give(self, fetched: Fetched | None, error: RefusedError | StoreError | None) -> None:
        if error is not None:
            respond_refusal(self.connection, self.request, error)
            return
        assert fetched is not None  # noqa: S101 - it is one of both
        found, parts, offset, broker_id = fetched
        if found.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[found.status]
        ext = {
            "suggestWhichBrokerId": str(broker_id),
            "nextBeginOffset": str(found.next_offset),
            "minOffset": str(found.min_offset),
            "maxOffset": str(found.max_offset),
        }
        node = self.context.node
        if not node.serving and (leader := leader_address(self.context.config, node)) is not None:
            ext[LEADER] = leader
        self.connection.respond(self.request, code, found.status.value, ext, parts)


def _fetch_request(connection: Connection, request: Frame) -> FetchRequest:
    flags = ext_int(request, "sysFlag")
    hold_ms = ext_int(request, "suspendTimeoutMillis")
    size = ext_int(request, "maxMsgBytes", -1)
    says_what = flags & FLAG_SUBSCRIPTION
    return FetchRequest(
        ext_str(request, "topic"),
        ext_int(request, "queueId"),
        ext_int(request, "queueOffset"),
        fetch_limits(ext_int(request, "maxMsgNums"), None if size < 0 else size),
        ext_str(request, "consumerGroup"),
        ext_str(request, "subscription", "") if says_what else None,
        (ext_str(request, "expressionType", TAG_TYPE) or TAG_TYPE) if says_what else TAG_TYPE,
        0 if says_what else ext_int(request, "subVersion"),
        ext_int(request, "commitOffset") if flags & FLAG_COMMIT_OFFSET else None,
        hold_ms / 1000 if flags & FLAG_SUSPEND else 0.0,
        connection,
    )
