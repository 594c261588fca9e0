"""A gRPC client for the broker's flows, which send it requests of RocketMQ 4.

Each request becomes a command in the client's Telemetry stream; its result becomes the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

from broker.grpc.call import name_of
from broker.grpc.protocol.definition_pb2 import Code, Resource
from broker.grpc.protocol.service_pb2 import (
    PrintThreadStackTraceCommand,
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from broker.grpc.sent_messages import message_of
from broker.remoting.pending_requests import Done
from broker.remoting.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError, ConnectionLostError, RequestTimeoutError
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.message.record import decode_record

Send: TypeAlias = Callable[[Callable[[], TelemetryCommand]], None]
"""Sends a command to a Telemetry stream. The command is made only if there is room for it: with a
decompressed body that takes milliseconds."""

_COMMANDS_MAX = 64
"""Format: the most unanswered commands; a client answers one at a time."""


class RemoteClient:
    """One client, at the leader. ``send`` sends a command to its Telemetry stream, at this broker
    or another one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        remote_address: str,
        send: Send,
    ) -> None:
        self.remote_address = remote_address
        self._loop = loop
        self._send = send
        self._on_close: list[Callable[[Any], None]] = []
        self._nonces = count(1)
        self._waiting: dict[str, tuple[Done, asyncio.TimerHandle]] = {}
        self._namespaces: dict[str, str] = {}
        """The namespace of each topic that the client names with one, by the topic's whole name."""

    def on_close(self, callback: Callable[[Any], None], /) -> None:
        """Calls ``callback`` when the client is gone."""
        self._on_close.append(callback)

    def reconnected(self, remote_address: str, send: Send) -> None:
        """The client has another stream. The end of the old one may not have been noticed yet."""
        self.remote_address, self._send = remote_address, send

    def uses(self, topics: Iterable[Resource]) -> None:
        """The client names these topics from now on, and no others."""
        self._namespaces = {
            name_of(topic): topic.resource_namespace for topic in topics if topic.resource_namespace
        }

    def close(self) -> None:
        """The client is gone: fails its open calls."""
        for nonce in list(self._waiting):
            self._fail(nonce, ConnectionLostError(self.remote_address, "the stream has ended"))
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback(self)

    def push(
        self, code: int, ext: Mapping[str, str] | None = None, body: Sequence[Bytes] = ()
    ) -> None:
        """Sends a check-back to a producer (39). Other one-way requests have no counterpart in
        gRPC, and are dropped."""
        if code != RequestCode.CHECK_TRANSACTION_STATE or ext is None:
            return
        record = decode_record(body[0])
        asked = transaction_id(int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"]))

        def command() -> TelemetryCommand:
            message = message_of(record, self._resource(record.topic))
            check = RecoverOrphanedTransactionCommand(message=message, transaction_id=asked)
            return TelemetryCommand(recover_orphaned_transaction_command=check)

        self._send(command)

    def call(
        self,
        code: int,
        _ext: Mapping[str, str] | None,
        body: Sequence[Bytes] = (),
        *,
        timeout: float,
        done: Done,
    ) -> None:
        """Asks for the client's threads (307), or makes it consume one message (309)."""
        nonce = str(next(self._nonces))
        is_full = len(self._waiting) >= _COMMANDS_MAX
        command = None if is_full else self._command(code, nonce, body)
        if command is None:
            why = "the gRPC protocol has no such request"
            self._loop.call_soon(done, None, CallError(self.remote_address, why))
            return
        late = RequestTimeoutError(self.remote_address, f"no answer within {timeout:g} s")
        self._waiting[nonce] = done, self._loop.call_later(timeout, self._fail, nonce, late)
        self._send(lambda: command)

    def answered(self, command: TelemetryCommand) -> None:
        """Takes the client's answer to a command."""
        if command.HasField("thread_stack_trace"):
            nonce = command.thread_stack_trace.nonce
            trace = command.thread_stack_trace.thread_stack_trace
            document: Mapping[str, object] = {
                "jstack": trace,
                "mqTable": {},
                "properties": {},
                "statusTable": {},
                "subscriptionSet": [],
            }
        elif command.HasField("verify_message_result"):
            nonce = command.verify_message_result.nonce
            consumed = command.status.code == Code.OK
            document = {
                "autoCommit": True,
                "consumeResult": "CR_SUCCESS" if consumed else "CR_LATER",
                "order": False,
                "remark": command.status.message,
                "spentTimeMills": 0,
            }
        else:
            return
        found = self._waiting.pop(nonce, None)
        if found is not None:
            done, timer = found
            timer.cancel()
            body = encode_json(document)
            done(Frame(ResponseCode.SUCCESS, 0, FLAG_RESPONSE, body=body), None)

    def _command(self, code: int, nonce: str, body: Sequence[Bytes]) -> TelemetryCommand | None:
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            stacks = PrintThreadStackTraceCommand(nonce=nonce)
            return TelemetryCommand(print_thread_stack_trace_command=stacks)
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            try:
                record = decode_record(body[0])
            except StoreError:
                return None
            message = message_of(record, self._resource(record.topic))
            verify = VerifyMessageCommand(nonce=nonce, message=message)
            return TelemetryCommand(verify_message_command=verify)
        return None

    def _resource(self, topic: str) -> Resource:
        """A topic as the client names it. Without a namespace it may have a "%" too."""
        namespace = self._namespaces.get(topic)
        if namespace is None:
            return Resource(name=topic)
        return Resource(resource_namespace=namespace, name=topic[len(namespace) + 1 :])

    def _fail(self, nonce: str, error: CallError) -> None:
        done, timer = self._waiting.pop(nonce)
        timer.cancel()
        done(None, error)


def transaction_id(offset: int, position: int) -> str:
    """The id of an open transaction for its producer: the half message's offset and position, 16
    hexadecimal digits each. So every broker understands it, after any failover."""
    return f"{offset:016X}{position:016X}"


def parse_transaction_id(text: str) -> tuple[int, int] | None:
    """The reverse of :func:`transaction_id`; None for another text."""
    if len(text) != 32 or not text.isascii() or not text.isalnum():
        return None
    try:
        return int(text[:16], 16), int(text[16:], 16)
    except ValueError:
        return None
