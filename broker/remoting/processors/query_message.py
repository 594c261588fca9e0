"""Single messages: by id (33) and by key (12)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import BrokerContext
from broker.errors import MissingMessageError
from broker.limits import CONSUME
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.ext_fields import ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from store.errors import NotReplicatedYetError, OutOfRangeError, StoreError
from store.io.filesystem import Bytes

UNIQUE_QUERY_MESSAGES = 32


class QueryMessageProcessor:
    """Handles the look-up of single messages."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def view_message(self, connection: Connection, request: Frame) -> None:
        """Code 33: the record whose physical offset is in the message id.

        "Not found" is answered only if that is certain. A request for an unreadable record is
        refused with the reason; the record may be readable a moment later, here or on another node.
        """
        position = ext_int(request, "offset")

        def answer(record: Bytes, error: StoreError | None) -> None:
            if error is None:
                connection.respond(request, body=(record,))
            elif isinstance(error, OutOfRangeError) and not isinstance(
                error, NotReplicatedYetError
            ):
                respond_refusal(connection, request, MissingMessageError(position, error))
            else:
                respond_refusal(connection, request, error)

        self._context.lookup.record(position, answer)

    def query_message(self, connection: Connection, request: Frame) -> None:
        """Code 12: the newest messages of a topic with a key, stored within a span of time.

        The index has only hashes of keys; clients compare the keys.
        """
        topic = ext_str(request, "topic")
        key = ext_str(request, "key")
        count = ext_int(request, "maxNum")
        if ext_bool(request, "_UNIQUE_KEY_QUERY", False):
            count = UNIQUE_QUERY_MESSAGES
        count = max(0, min(count, CONSUME.query_messages_max))
        begin_ms = ext_int(request, "beginTimestamp")
        end_ms = ext_int(request, "endTimestamp")

        def loaded(records: Sequence[Bytes], error: StoreError | None) -> None:
            machine = self._context.machine
            ext = {
                "indexLastUpdateTimestamp": str(machine.state.store_timestamp_ms),
                "indexLastUpdatePhyoffset": str(machine.applied_end),
            }
            if error is not None:
                respond_refusal(connection, request, error)
            elif not records:
                remark = f"can not find message of the topic {topic} with the key {key}"
                connection.respond(request, ResponseCode.QUERY_NOT_FOUND, remark, ext)
            else:
                connection.respond(request, ext=ext, body=records)

        self._context.lookup.by_key(topic, key, begin_ms, end_ms, count=count, done=loaded)
