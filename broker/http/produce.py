"""``POST /topics/T/messages``: one message as JSON, answered once it is committed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from aiohttp import web

from broker.context import BrokerContext
from broker.group_commit.pending_batch import StoredEarlier
from broker.http.access import ACCOUNT
from broker.http.errors import bad_request, json_response
from broker.http.forwarding import HttpForwarder
from broker.http.json_body import decode_json
from broker.http.memory_budget import MEMORY
from broker.ingest.awaited_send import AwaitedSend
from broker.ingest.send_request import SendRequest
from broker.limits import HttpLimits
from broker.quotas.held_sends import HeldSends
from broker.quotas.throttle import Caller
from store.message.properties import encode_properties

_FIELDS = ("body", "body_base64", "keys", "properties", "queue_id", "tags")
_TOO_LARGE = "body_too_large"
"""As ingest's refusal is counted: nothing else of a message may be large."""
_NO_HOST = bytes(8)
"""The born host of such a record: unknown, because the client may be a proxy."""


class ProduceHandler:
    """Stores messages that are posted to a topic. A codec, like the processors of the remoting
    port."""

    def __init__(
        self, context: BrokerContext, forwarder: HttpForwarder, limits: HttpLimits
    ) -> None:
        self._context = context
        self._forwarder = forwarder
        self._held = HeldSends(limits.held_sends_max, limits.held_bytes_max)

    async def post(self, request: web.Request) -> web.Response:
        """See the module."""
        context = self._context
        read = await request.app[MEMORY].read(request, too_large_as=_TOO_LARGE)
        document = _document(read)
        body = _body(document)
        sent = SendRequest(
            request.match_info["topic"],
            _queue_id(document),
            sys_flag=0,
            born_timestamp=context.wall_clock(),
            flag=0,
            reconsume_times=0,
            properties=_properties(document),
        )
        del document  # not kept until the answer
        caller = Caller(request.get(ACCOUNT, ""))
        return await self._forwarder.serve_or_forward(
            request, read, partial(self._store, sent, body, caller)
        )

    async def _store(self, sent: SendRequest, body: bytes, caller: Caller) -> web.Response:
        context = self._context
        waiter = AwaitedSend(context.loop, lambda: caller)
        quotas = context.ingest.quotas
        owes = quotas is not None and quotas.owes(caller, sent.topic)
        with self._held.holding(len(body)) if owes else nullcontext():
            context.ingest.submit(sent, body, _NO_HOST, waiter)
            offset, position = await waiter.done
        at = waiter.earlier or StoredEarlier(context.store_host, waiter.queue_id)
        stored: dict[str, object] = {
            "msg_id": f"{at.host.hex().upper()}{position:016X}",
            "queue_id": at.queue_id,
            "queue_offset": offset,
            "broker": context.config.group,
        }
        if waiter.recall_handle is not None:
            stored["recall_handle"] = waiter.recall_handle.at(position)
        return json_response(stored)


def _document(body: bytearray) -> Mapping[str, Any]:
    document = decode_json(body)
    if not isinstance(document, dict):
        raise bad_request("the request is not a JSON object")
    for name in document:
        if name not in _FIELDS:
            raise bad_request(
                f"{name} is not a field of a message; the fields are {', '.join(_FIELDS)}"
            )
    return document


def _body(document: Mapping[str, Any]) -> bytes:
    text, encoded = document.get("body"), document.get("body_base64")
    if (text is None) == (encoded is None):
        raise bad_request("a message has either body or body_base64")
    if encoded is None:
        return _text("body", text).encode()
    try:
        return base64.b64decode(_text("body_base64", encoded), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"body_base64 is not base64: {error}") from error


def _properties(document: Mapping[str, Any]) -> bytes:
    given = document.get("properties", {})
    if type(given) is not dict:
        raise bad_request("properties is not a JSON object")
    if "" in given:
        raise bad_request("a property has no name")
    properties = {name: _text(f"the property {name}", value) for name, value in given.items()}
    if "tags" in document:
        properties["TAGS"] = _text("tags", document["tags"])
    keys = document.get("keys", [])
    if type(keys) is not list:
        raise bad_request("keys is not a list")
    if keys:
        properties["KEYS"] = " ".join(map(_key, keys))
    try:
        return encode_properties(properties)
    except ValueError as error:
        raise bad_request(str(error)) from error


def _key(value: object) -> str:
    key = _text("a key", value)
    if key.split() != [key]:
        raise bad_request(f"a key is one word without white space: {key!r}")
    return key


def _queue_id(document: Mapping[str, Any]) -> int:
    """The requested queue; below 0: any queue."""
    if "queue_id" not in document:
        return -1
    queue_id = document["queue_id"]
    if type(queue_id) is float and queue_id.is_integer():
        queue_id = int(queue_id)  # in JSON 2.0 is the same number as 2
    if type(queue_id) is not int:
        raise bad_request(f"queue_id is not an integer: {queue_id!r}")
    if queue_id < 0:
        raise bad_request(f"queue_id is below 0: {queue_id}; leave it out for any queue")
    return queue_id


def _text(field: str, value: object) -> str:
    if type(value) is not str:
        raise bad_request(f"{field} is not a string: {value!r}")
    return value
