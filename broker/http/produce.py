"""``POST /topics/T/messages``: one message as JSON, answered when it is committed."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web

from broker.admin.group_members import member_addresses
from broker.context import BrokerContext
from broker.http.errors import HttpRefusedError, json_response, refused_by_error, refused_with_code
from broker.http.json_body import decode_json
from broker.http.memory_budget import MEMORY
from broker.ingest.auto_create import auto_create_topic
from broker.ingest.message_router import MessageRouter
from broker.remoting.error_responses import REFUSALS
from broker.remoting.processors.send_message import queue_for_send
from broker.remoting.processors.send_message_header import SendHeader
from broker.remoting.protocol.errors import RequestError
from broker.topics_and_groups import AUTO_CREATE_TOPIC
from dledger.errors import ProposeError
from store.message.properties import encode_properties

DEFAULT_QUEUES = 4
_FIELDS = ("body", "body_base64", "keys", "properties", "queue_id", "tags")
_NO_HOST = bytes(8)
"""The born host of a record: a proxy's address would say nothing, so none is kept."""


class _Stored:
    """Waits for one message (see :class:`~broker.ingest.deduplication.SendWaiter`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: bytes, queue_id: int) -> None:
        self.done: asyncio.Future[tuple[bytes, int, int, int]] = loop.create_future()
        """Host, queue, offset and position."""
        self._host = host
        self._queue_id = queue_id

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        self.already_stored(self._host, self._queue_id, first_offset, positions)

    def already_stored(
        self, host: bytes, queue_id: int, first_offset: int, positions: Sequence[int]
    ) -> None:
        if not self.done.done():
            self.done.set_result((host, queue_id, first_offset, positions[0]))

    def failed(self, error: ProposeError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class ProduceHandler:
    """Handles what is posted to a topic."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._router = MessageRouter(context)

    async def post(self, request: web.Request) -> web.Response:
        """See the module."""
        context = self._context
        name = request.match_info["topic"]
        document = _document(await request.app[MEMORY].read(request))
        leader = self._leader()
        try:
            context.batcher.check_serving()
            body, properties = self._body(document), _properties(document)
            topic = context.batcher.topic(name) or auto_create_topic(
                context, name, AUTO_CREATE_TOPIC, DEFAULT_QUEUES
            )
            queue_id = queue_for_send(topic, _queue_id(document), context.rng)
            del document  # not kept while the message is on its way
            waiter = _Stored(context.loop, context.store_host, queue_id)
            self._router.route(
                SendHeader(name, queue_id, 0, context.wall_clock(), 0, 0, properties),
                queue_id,
                body,
                _NO_HOST,
                waiter=waiter,
            )
            host, queue_id, offset, position = await waiter.done
        except RequestError as error:
            raise refused_with_code(error.code, error.remark, leader) from error
        except REFUSALS as error:
            raise refused_by_error(error, leader) from error
        return json_response(
            {
                "msg_id": f"{host.hex().upper()}{position:016X}",
                "queue_id": queue_id,
                "queue_offset": offset,
                "broker": context.config.group,
            }
        )

    def _leader(self) -> str | None:
        """The HTTP address of the leader, where it is another node."""
        leader = self._context.node.leadership.leader
        if leader is None or leader == self._context.config.node:
            return None
        found = self._context.node.core.configuration
        member = member_addresses(self._context.config, found).get(leader)
        return member.http if member is not None and member.http else None

    def _body(self, document: Mapping[str, Any]) -> bytes:
        body = _body(document)
        size_max = self._context.config.max_message_size
        if len(body) > size_max:
            raise HttpRefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body has {len(body)} bytes, at most {size_max} are allowed",
            )
        return body


def _document(body: bytearray) -> Mapping[str, Any]:
    document = decode_json(body)
    if not isinstance(document, dict):
        raise _bad("the request is not a JSON object")
    for name in document:
        if name not in _FIELDS:
            raise _bad(f"{name} is no field of a message; known are {', '.join(_FIELDS)}")
    return document


def _body(document: Mapping[str, Any]) -> bytes:
    text, encoded = document.get("body"), document.get("body_base64")
    if (text is None) == (encoded is None):
        raise _bad("a message has either body or body_base64")
    if encoded is None:
        return _text("body", text).encode()
    try:
        return base64.b64decode(_text("body_base64", encoded), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad(f"body_base64 is not base64: {error}") from error


def _properties(document: Mapping[str, Any]) -> bytes:
    given = document.get("properties", {})
    if type(given) is not dict:
        raise _bad("properties is not a JSON object")
    if "" in given:
        raise _bad("a property has no name")
    properties = {name: _text(f"the property {name}", value) for name, value in given.items()}
    if "tags" in document:
        properties["TAGS"] = _text("tags", document["tags"])
    keys = document.get("keys", [])
    if type(keys) is not list:
        raise _bad("keys is not a list")
    if keys:
        properties["KEYS"] = " ".join(map(_key, keys))
    try:
        return encode_properties(properties)
    except ValueError as error:
        raise _bad(str(error)) from error


def _key(value: object) -> str:
    key = _text("a key", value)
    if key.split() != [key]:
        raise _bad(f"a key is one word without white space: {key!r}")
    return key


def _queue_id(document: Mapping[str, Any]) -> int:
    """That asked for; below 0 where the message may go to any."""
    if "queue_id" not in document:
        return -1
    queue_id = document["queue_id"]
    if type(queue_id) is not int:
        raise _bad(f"queue_id is not an integer: {queue_id!r}")
    if queue_id < 0:
        raise _bad(f"queue_id is below 0: {queue_id}; leave it out for any queue")
    return queue_id


def _text(what: str, value: object) -> str:
    if type(value) is not str:
        raise _bad(f"{what} is not a string: {value!r}")
    return value


def _bad(what: str) -> HttpRefusedError:
    return HttpRefusedError(HTTPStatus.BAD_REQUEST, what)
