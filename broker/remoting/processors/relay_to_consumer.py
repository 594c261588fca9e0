"""Requests of tools to a consumer, relayed by its broker: 223, 307, 309.

The consumer is asked over its own connection, and its answer is passed on unchanged. For 307 and
309 the consumer may be connected to another broker of the group. A client that does not know the
request answers so itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from broker.context import BrokerContext
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import (
    CallError,
    ClientNotOnlineError,
    FieldError,
    RequestError,
    RequestTimeoutError,
)
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import decode_json, encode_json
from broker.security.signature import CALLER_FIELDS
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.quoting import quoted

CLIENT_SECONDS = 10.0
STATUS_SECONDS = 5.0

_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{16}([0-9A-Fa-f]{16})")
"""A message id; its last half is the position in the commit log."""


class RelayProcessor:
    """Passes requests on to consumers."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def running_info(self, connection: Connection, request: Frame) -> None:
        """Code 307: the client's report of its queues, threads and rates."""
        self._relay(connection, request, _named(request), _fields(request), request.body)

    def consume_directly(self, connection: Connection, request: Frame) -> None:
        """Code 309: the client consumes one message now, outside of its queues."""
        message_id = ext_str(request, "msgId")
        match = _MESSAGE_ID.fullmatch(message_id)
        if match is None:
            raise FieldError(f"field msgId is no id of a message: {quoted(message_id)}")
        named = _named(request)
        fields = _fields(request) | {"brokerName": self._context.config.group}

        def found(record: Bytes, error: StoreError | None) -> None:
            if error is None:
                self._relay(connection, request, named, fields, record)
            else:
                respond_refusal(connection, request, error)

        self._context.lookup.record(int(match[1], 16), found)

    def consumer_status(self, connection: Connection, request: Frame) -> None:
        """Code 223: the offsets of each member of a group in a topic, or of the one named
        ``clientAddr``."""
        group, topic = ext_str(request, "group"), ext_str(request, "topic")
        only = ext_str(request, "clientAddr", "")
        members = [
            (member, client.client_id)
            for member, client in self._context.clients.group(group).members.items()
            if only in {"", client.client_id}
        ]
        if not members:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        status = _Status(connection, request, len(members))
        for member, client_id in members:
            member.call(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                {"group": group, "topic": topic},
                timeout=STATUS_SECONDS,
                done=partial(status.answered, client_id),
            )

    def _relay(
        self,
        connection: Connection,
        request: Frame,
        named: tuple[str, str],
        fields: dict[str, str],
        body: Bytes,
    ) -> None:
        """Relays to the client ``named`` (group and client id), connected here or to another broker
        of the group."""
        group, client_id = named
        member = self._context.clients.member_named(group, client_id)
        elsewhere = partial(self._context.elsewhere.call, client_id, group)

        def answered(answer: Frame | None, failure: CallError | None) -> None:
            if answer is not None:
                connection.respond(request, answer.code, answer.remark, body=(answer.body,))
            elif isinstance(failure, ClientNotOnlineError):
                remark = f"The Consumer <{group}> <{client_id}> not online"
                connection.respond(request, ResponseCode.SYSTEM_ERROR, remark)
            elif isinstance(failure, RequestTimeoutError):
                connection.respond(request, ResponseCode.CONSUME_MSG_TIMEOUT, str(failure))
            else:
                connection.respond(request, ResponseCode.SYSTEM_ERROR, str(failure))

        call = elsewhere if member is None else member.call
        call(request.code, fields, (body,), timeout=CLIENT_SECONDS, done=answered)


class _Status:
    """Joins the answers of several members; members that do not answer are left out."""

    def __init__(self, connection: Connection, request: Frame, members: int) -> None:
        self._connection = connection
        self._request = request
        self._waits_for = members
        self._tables: dict[str, bytes] = {}

    def answered(self, client_id: str, answer: Frame | None, _failure: CallError | None) -> None:
        """The outcome of the request to one member."""
        table = None
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            table = _offset_table(answer.body)
        if table is not None:
            self._tables[client_id] = table
        self._waits_for -= 1
        if self._waits_for == 0:
            tables: Sequence[bytes] = [
                encode_json(name) + b":" + table for name, table in sorted(self._tables.items())
            ]
            body = b'{"consumerTable":{%b}}' % b",".join(tables)
            self._connection.respond(self._request, body=(body,))


def _named(request: Frame) -> tuple[str, str]:
    """The consumer group and the client. Raises
    :class:`~broker.remoting.protocol.errors.FieldError`."""
    return ext_str(request, "consumerGroup"), ext_str(request, "clientId")


def _fields(request: Frame) -> dict[str, str]:
    """The fields to relay, without the signature: it is for this broker alone.

    Raises :class:`~broker.remoting.protocol.errors.FieldError`.
    """
    return {name: ext_str(request, name, "") for name in request.ext.keys() - CALLER_FIELDS}


def _offset_table(body: bytes) -> bytes | None:
    """The offsets in a member's answer, with the same objects as keys; None if it has none."""
    try:
        table = decode_json(body)["messageQueueTable"]
        pairs = [key.encode() + b":%d" % offset for key, offset in table.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return b"{%b}" % b",".join(pairs)
